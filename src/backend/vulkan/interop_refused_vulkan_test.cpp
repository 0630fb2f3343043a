#include <gtest/gtest.h>

#include <cstdint>

#include "harness/in_engine.h"

// What Rota refuses an engine, and with which words.

namespace rota::test {
namespace {

using namespace std::chrono_literals;

TEST_F(InEngine, ABufferThatKernelsCannotUseIsRefused) {
  adopt();
  const EngineMemory transfers =
      engine->allocate(kBytes, VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
  expect_error(vulkan::wrap(*adopted, VulkanEngine::foreign(transfers)), Errc::invalid_argument,
               {"wrap: usage is 0x3", "STORAGE_BUFFER"});
  vulkan::ForeignBuffer foreign = VulkanEngine::foreign(engine->allocate(kBytes));
  foreign.size_bytes = 6;
  expect_error(vulkan::wrap(*adopted, foreign), Errc::invalid_argument, {"wrap: size_bytes is 6", "multiple of 4"});
  foreign.size_bytes = 0;
  expect_error(vulkan::wrap(*adopted, foreign), Errc::invalid_argument, {"wrap: size_bytes is 0"});
  foreign.size_bytes = 4;
  foreign.buffer = VK_NULL_HANDLE;
  expect_error(vulkan::wrap(*adopted, foreign), Errc::invalid_argument, {"wrap: buffer is null"});
}

TEST_F(InEngine, WithoutAQueueOnlyRecordingWorks) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.queue = VK_NULL_HANDLE;
  adopted = vulkan::adopt(adoption).value();
  const EngineMemory x = engine->allocate(kBytes);
  Encoder refused = adopted->encoder();
  rotate(refused, wrapped(x));
  expect_error(std::move(refused).submit(), Errc::unsupported, {"submit", "without a queue", "vulkan::record()"});
  Encoder also = adopted->encoder();
  rotate(also, wrapped(x));
  expect_error(vulkan::submit(std::move(also), {}), Errc::unsupported, {"submit", "without a queue"});
  Buffer unmapped = vulkan::wrap(*adopted, VulkanEngine::foreign(x, false)).value();
  std::vector<std::byte> bytes(kBytes);
  expect_error(unmapped.read(bytes), Errc::unsupported, {"Buffer::read", "without a queue"});
  expect_error(unmapped.write(bytes), Errc::unsupported, {"Buffer::write", "without a queue"});
  EXPECT_OK(wrapped(x).read(bytes));  // through its mapping

  Chain chain(*engine, *adopted);
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  const Fence fence = chain.record(commands, done);
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  EXPECT_NE(chain.read_back->as<float>()[0], 0.0F);
}

TEST_F(InEngine, CopiesNeedTransfersOrAMapping) {
  adopt();
  const EngineMemory only_storage = engine->allocate(kBytes, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT);
  Buffer unmapped = vulkan::wrap(*adopted, VulkanEngine::foreign(only_storage, false)).value();
  std::vector<std::byte> bytes(kBytes);
  expect_error(unmapped.read(bytes), Errc::invalid_argument, {"Buffer::read", "TRANSFER_SRC"});
  expect_error(unmapped.write(bytes), Errc::invalid_argument, {"Buffer::write", "TRANSFER_DST"});
  EXPECT_OK(wrapped(only_storage).read(bytes));
  const EngineMemory x = engine->allocate(kBytes);
  Buffer staged = vulkan::wrap(*adopted, VulkanEngine::foreign(x, false)).value();
  std::ranges::fill(bytes, std::byte{7});
  ASSERT_OK(staged.write(bytes));
  EXPECT_EQ(x->as<std::byte>(), bytes);
}

TEST_F(InEngine, BadArgumentsAreRefused) {
  const vulkan::Adoption good = engine->adoption();
  const auto refused = [&](auto change, std::initializer_list<std::string_view> texts) {
    vulkan::Adoption bad = good;
    change(bad);
    expect_error(vulkan::adopt(bad), Errc::invalid_argument, texts);
  };
  refused([](auto& bad) { bad.get_instance_proc_addr = nullptr; }, {"adopt: get_instance_proc_addr is null"});
  refused([](auto& bad) { bad.instance = VK_NULL_HANDLE; }, {"adopt: instance is null"});
  refused([](auto& bad) { bad.physical_device = VK_NULL_HANDLE; }, {"adopt: physical_device is null"});
  refused([](auto& bad) { bad.device = VK_NULL_HANDLE; }, {"adopt: device is null"});
  refused([](auto& bad) { bad.queue_family = 99; }, {"adopt: queue_family is 99"});
  refused([](auto& bad) { bad.patience = -1ns; }, {"adopt: patience is below zero"});

  adopt();
  const VkCommandBuffer commands = engine->begin();
  const auto recorded = [&](const vulkan::Recording& recording) {
    return vulkan::record(adopted->encoder(), recording);
  };
  expect_error(recorded({.done = {engine->timeline, 1}}), Errc::invalid_argument, {"record: commands is null"});
  expect_error(recorded({.commands = commands}), Errc::invalid_argument, {"record: done.semaphore is null"});
  expect_error(recorded({.commands = commands, .done = {engine->timeline, 0}}), Errc::invalid_argument,
               {"record: done.value is 0", "more than 0"});
  expect_error(vulkan::submit(adopted->encoder(), {.waits = {{}}}), Errc::invalid_argument,
               {"submit: waits[0].semaphore is null"});
  expect_error(vulkan::submit(adopted->encoder(), {.signals = {{}}}), Errc::invalid_argument,
               {"submit: signals[0].semaphore is null"});
  engine->end(commands);

  Encoder wrong = adopted->encoder();
  rotate(wrong, {});
  expect_error(vulkan::record(std::move(wrong), {}), Errc::invalid_argument, {"rope", "a view of no buffer"});
  Encoder moved = adopted->encoder();
  const Encoder elsewhere = std::move(moved);
  expect_error(vulkan::record(std::move(moved), {}), Errc::invalid_argument, {"the encoder"});  // NOLINT: on purpose
}

TEST_F(InEngine, OnlyAnAdoptedDeviceTakesTheEnginesHandles) {
  const EngineMemory x = engine->allocate(kBytes);
  for (const char* const id : {"cpu", "vulkan:0"}) {
    Device other = Device::open({.device = id}).value();
    expect_error(vulkan::wrap(other, VulkanEngine::foreign(x)), Errc::invalid_argument,
                 {"wrap: the device is", id, "vulkan::adopt()"});
    expect_error(vulkan::submit(other.encoder(), {}), Errc::invalid_argument, {"submit: the device is", id});
    expect_error(vulkan::record(other.encoder(), {}), Errc::invalid_argument, {"record: the device is", id});
  }
}

TEST_F(InEngine, WithoutTimelineSemaphoresNothingIsRecorded) {
  engine = std::make_unique<VulkanEngine>(log, EngineOptions{.timelines = false});
  adopt();
  const VkCommandBuffer commands = engine->begin();
  expect_error(vulkan::record(adopted->encoder(), {.commands = commands}), Errc::unsupported,
               {"record", "without timeline semaphores"});
  const auto any = reinterpret_cast<VkSemaphore>(std::uintptr_t{1});
  expect_error(vulkan::submit(adopted->encoder(), {.waits = {{any, 1}}}), Errc::unsupported,
               {"submit", "without timeline semaphores"});
  engine->end(commands);
  const EngineMemory x = engine->allocate(kBytes);
  Encoder encoder = adopted->encoder();
  rotate(encoder, wrapped(x));
  EXPECT_OK(vulkan::submit(std::move(encoder), {}).value().wait());
}

TEST_F(InEngine, ALockThatRunsNothingIsAnError) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.with_queue = [](const std::function<void()>&) {};
  adopted = vulkan::adopt(adoption).value();
  Encoder encoder = adopted->encoder();
  rotate(encoder, adopted->allocate(kBytes).value());
  expect_error(std::move(encoder).submit(), Errc::internal, {"vkQueueSubmit", "VK_NOT_READY"});
}

}  // namespace
}  // namespace rota::test
