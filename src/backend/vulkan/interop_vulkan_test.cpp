#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "harness/in_engine.h"

// Rota inside of an engine. Everything of Vulkan's is the test's own, validation included.

namespace rota::test {
namespace {

using vulkan::Edges;
using namespace std::chrono_literals;

TEST_F(InEngine, OneCommandBufferHoldsTheEnginesCommandsAndRotas) {
  Device owned = Device::open(options_under_test()).value();
  ASSERT_EQ(adopt().info().name, owned.info().name);
  Chain chain(*engine, *adopted);
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  const Fence fence = chain.record(commands, done);
  EXPECT_FALSE(fence.done().value()) << "nothing was submitted";
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  EXPECT_EQ(chain.read_back->as<float>(), chain_on(owned));
  EXPECT_NE(chain.read_back->as<float>()[0], 0.0F);
}

TEST_F(InEngine, TimelineSemaphoresMayBeAnExtensionOfVulkan11) {
  engine = std::make_unique<VulkanEngine>(log, EngineOptions{.as_extension = true});
  adopt();
  Chain chain(*engine, *adopted);
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  const Fence fence = chain.record(commands, done);
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  Device owned = Device::open(options_under_test()).value();
  EXPECT_EQ(chain.read_back->as<float>(), chain_on(owned));
}

TEST_F(InEngine, DescriptorsArePushedIntoTheEnginesCommandBuffer) {
  Device owned = Device::open(options_under_test()).value();
  const auto& backend = dynamic_cast<vk::VulkanBackend&>(runtime::Inside::of(owned)->backend());
  if (!backend.context()->pushes_descriptors) return;  // SwiftShader: the other tests are all that it can do
  engine = std::make_unique<VulkanEngine>(log, EngineOptions{.push_descriptors = true});
  adopt();
  EXPECT_TRUE(context().pushes_descriptors);
  Chain chain(*engine, *adopted);
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  const Fence fence = chain.record(commands, done);
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  EXPECT_EQ(chain.read_back->as<float>(), chain_on(owned));
}

TEST_F(InEngine, AnEdgeThatIsLeftOutIsSeenByValidation) {
  adopt();
  for (const Edges edges : {Edges::before, Edges::after, Edges::none}) {
    Chain chain(*engine, *adopted);
    const VkCommandBuffer commands = engine->begin();
    const vulkan::TimelinePoint done = next();
    const Fence fence = chain.record(commands, done, edges);
    engine->submit(commands, done);
    ASSERT_OK(fence.wait());
    const auto messages = log.take();
    EXPECT_TRUE(any_says(messages, "SYNC-HAZARD-READ-AFTER-WRITE")) << "edges " << static_cast<int>(edges);
  }
}

// Drops one of the barriers that Rota writes.
struct EdgeThief {
  static inline PFN_vkCmdPipelineBarrier original = nullptr;
  static inline VkPipelineStageFlags stolen_from = 0, stolen_to = 0;

  static void VKAPI_PTR steal(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                              VkDependencyFlags flags, uint32_t memory_count, const VkMemoryBarrier* memory,
                              uint32_t buffer_count, const VkBufferMemoryBarrier* buffers, uint32_t image_count,
                              const VkImageMemoryBarrier* images) {
    if ((from & stolen_from) != 0 || (to & stolen_to) != 0) return;
    original(commands, from, to, flags, memory_count, memory, buffer_count, buffers, image_count, images);
  }
};

TEST_F(InEngine, AnEdgeThatIsDroppedIsSeenByValidation) {
  adopt();
  EdgeThief::original = std::exchange(context().vk.vkCmdPipelineBarrier, EdgeThief::steal);
  constexpr VkPipelineStageFlags kAll = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  for (const auto& [from, to] : {std::pair{kAll, VkPipelineStageFlags{0}}, std::pair{VkPipelineStageFlags{0}, kAll}}) {
    EdgeThief::stolen_from = from;
    EdgeThief::stolen_to = to;
    Chain chain(*engine, *adopted);
    const VkCommandBuffer commands = engine->begin();
    const vulkan::TimelinePoint done = next();
    const Fence fence = chain.record(commands, done);
    engine->submit(commands, done);
    ASSERT_OK(fence.wait());
    EXPECT_TRUE(any_says(log.take(), "SYNC-HAZARD"));
  }
}

TEST_F(InEngine, BindingsEndWhereBuffersOfFourModSixteenBytesDo) {
  adopt();
  constexpr std::uint64_t kOdd = 5;      // one key of five coordinates: 20 bytes
  std::array<EngineMemory, 4> memories;  // q, k, v and out
  for (EngineMemory& memory : memories) memory = engine->allocate(kOdd * sizeof(float));
  const std::array<float, kOdd> numbers{1, -2, 3, -4, 5};
  for (std::size_t i = 0; i < 3; ++i) std::memcpy(memories[i]->host, numbers.data(), sizeof(numbers));
  const EngineMemory sums = engine->allocate(4);

  const SlotShape slots{.page_slots = 1, .heads = 1, .dim = kOdd};
  const TokenRun run{.tokens = 1, .position = 0, .capacity = 1};
  const KvView kv = KvView::of_slots(SlotView::token_major(wrapped(memories[1]), DType::f32, slots),
                                     SlotView::token_major(wrapped(memories[2]), DType::f32, slots), {&run, 1});
  constexpr Shape kOne{.tokens = 1, .heads = 1, .dim = kOdd};
  Encoder encoder = adopted->encoder();
  attend(encoder, {.q = View::token_major(wrapped(memories[0]), DType::f32, kOne),
                   .kv = kv,
                   .out = MutView::token_major(wrapped(memories[3]), DType::f32, kOne),
                   .scale = 1.0});
  const WordRange all{.buffer = wrapped(memories[2]), .size_bytes = sizeof(numbers)};
  checksum(encoder, {.of = {&all, 1}, .sums = wrapped(sums)});
  ASSERT_OK(std::move(encoder).submit().value().wait());
  EXPECT_EQ(memories[3]->as<float>(), std::vector<float>(numbers.begin(), numbers.end()));
  std::uint32_t sum = 0;
  for (const float number : numbers) sum += std::bit_cast<std::uint32_t>(number);
  EXPECT_EQ(sums->as<std::uint32_t>()[0], sum);
}

TEST_F(InEngine, WhatIsRecordedLivesUntilItHasRun) {
  adopt();
  const VkSemaphore gate = engine->make_timeline();
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  auto x = engine->allocate(kBytes);
  const EngineMemory kept = engine->allocate(kBytes);
  const std::weak_ptr<VulkanEngine::Memory> watched = x;
  engine->fill(commands, *x, 1.5F);
  {
    Encoder encoder = adopted->encoder();
    rotate(encoder, wrapped(x));
    vulkan::record(std::move(encoder), {.commands = commands, .done = done}).value().done().value();
  }
  engine->copy(commands, *x, *kept);
  engine->submit(commands, done, {gate, 1});
  x.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(watched.expired()) << "the commands have not run";
    engine->signal({gate, 1});
  });
  adopted.reset();  // the last handle: waits
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(engine->value_of(engine->timeline), done.value);
  later.join();
  EXPECT_NE(kept->as<float>()[0], 0.0F);
}

TEST_F(InEngine, WhatIsRecordedIsLetGoOnceItHasRun) {
  adopt();
  auto x = engine->allocate(kBytes);
  const std::weak_ptr<VulkanEngine::Memory> watched = x;
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  Encoder encoder = adopted->encoder();
  rotate(encoder, wrapped(x));
  const Fence fence = vulkan::record(std::move(encoder), {.commands = commands, .done = done}).value();
  x.reset();
  EXPECT_FALSE(fence.wait_for(1ms).value());
  EXPECT_FALSE(watched.expired());
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  EXPECT_TRUE(watched.expired());
  EXPECT_TRUE(fence.done().value()) << "for ever after";
}

TEST_F(InEngine, ACommandBufferThatNobodySubmitsHoldsNobodyUp) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.patience = 20ms;
  adopted = vulkan::adopt(adoption).value();
  const EngineMemory x = engine->allocate(kBytes);
  Buffer buffer = wrapped(x);
  const VkCommandBuffer commands = engine->begin();
  Encoder encoder = adopted->encoder();
  rotate(encoder, buffer);
  const Fence fence = vulkan::record(std::move(encoder), {.commands = commands, .done = next()}).value();
  engine->end(commands);

  // Copies do not wait for what may never come.
  std::vector<std::byte> bytes(kBytes);
  expect_error(buffer.read(bytes), Errc::busy, {"Buffer::read", "vulkan::record()", "has not reached 1", "its fence"});
  expect_error(buffer.write(bytes), Errc::busy, {"Buffer::write", "vulkan::record()", "has not reached 1"});
  EXPECT_FALSE(fence.wait_for(1ms).value());
  // Nor does one that a submission of Rota's own came between.
  Encoder other = adopted->encoder();
  rotate(other, buffer);
  ASSERT_OK(std::move(other).submit().value().wait());
  expect_error(buffer.read(bytes), Errc::busy, {"Buffer::read"});

  engine->signal({engine->timeline, 1});  // the engine gives it up
  EXPECT_OK(buffer.read(bytes));
  EXPECT_OK(buffer.write(bytes));
}

// A recorded batch that has ended says nothing of what was submitted before it.
TEST_F(InEngine, ACopyWaitsForASubmissionThoughALaterRecordingWasGivenUp) {
  adopt();
  const VkSemaphore gate = engine->make_timeline();
  const EngineMemory x = engine->allocate(kBytes);
  const std::vector<float> ones(kBytes / sizeof(float), 1.0F);
  std::memcpy(x->host, ones.data(), kBytes);
  Buffer buffer = wrapped(x);
  Encoder first = adopted->encoder();
  rotate(first, buffer);
  vulkan::submit(std::move(first), {.waits = {{gate, 1}}, .signals = {}}).value().done().value();
  const VkCommandBuffer commands = engine->begin();
  Encoder second = adopted->encoder();
  rotate(second, buffer);
  const vulkan::TimelinePoint done = next();
  vulkan::record(std::move(second), {.commands = commands, .done = done}).value().done().value();
  engine->end(commands);
  engine->signal(done);  // the engine gives it up
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    engine->signal({gate, 1});
  });
  std::vector<float> found(ones.size());
  EXPECT_OK(buffer.read(std::as_writable_bytes(std::span(found))));
  later.join();
  EXPECT_NE(found, ones) << "the first submission had not run";
}

TEST_F(InEngine, ATraceTellsOfWhatWasRecordedAndSubmitted) {
  std::vector<std::string> ops;
  std::vector<TraceEvent> events;
  vulkan::Adoption adoption = engine->adoption();
  adoption.trace = [&](const TraceEvent& event) {
    ops.emplace_back(event.op);
    events.push_back(event);
  };
  adopted = vulkan::adopt(adoption).value();
  const EngineMemory x = engine->allocate(kBytes);
  const VkCommandBuffer commands = engine->begin();
  Encoder recorded = adopted->encoder();
  rotate(recorded, wrapped(x));
  const vulkan::TimelinePoint done = next();
  const Fence fence = vulkan::record(std::move(recorded), {.commands = commands, .done = done}).value();
  engine->submit(commands, done);
  ASSERT_OK(fence.wait());
  EXPECT_EQ(ops, std::vector<std::string>{"rope"});
  Encoder submitted = adopted->encoder();
  rotate(submitted, wrapped(x));
  ASSERT_OK(std::move(submitted).submit().value().wait());
  EXPECT_EQ(ops, (std::vector<std::string>{"rope", "rope"}));
  for (const TraceEvent& event : events) EXPECT_GT(event.device_begin.count(), 0);
}

TEST_F(InEngine, WhatNeverEndsIsLeftForValidationToName) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.patience = 20ms;
  adopted = vulkan::adopt(adoption).value();
  const VkCommandBuffer commands = engine->begin();
  Encoder encoder = adopted->encoder();
  rotate(encoder, adopted->allocate(kBytes).value());
  vulkan::record(std::move(encoder), {.commands = commands, .done = next()}).value().done().value();
  engine->end(commands);
  const auto begin = std::chrono::steady_clock::now();
  adopted.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_TRUE(log.take().empty()) << "nothing in use was destroyed";
  engine.reset();
  EXPECT_TRUE(any_says(log.take(), "has not been destroyed"));
}

TEST_F(InEngine, ASubmissionWaitsAndSignals) {
  adopt();
  const VkSemaphore gate = engine->make_timeline();
  const EngineMemory x = engine->allocate(kBytes);
  Encoder encoder = adopted->encoder();
  rotate(encoder, wrapped(x));
  const vulkan::TimelinePoint done = next();
  const Fence fence = vulkan::submit(std::move(encoder), {.waits = {{gate, 7}}, .signals = {done}}).value();
  EXPECT_FALSE(fence.wait_for(20ms).value()) << "the gate is closed";
  const std::vector<float> ones(kBytes / sizeof(float), 1.0F);
  std::memcpy(x->host, ones.data(), kBytes);
  engine->signal({gate, 7});
  ASSERT_OK(fence.wait());
  EXPECT_TRUE(engine->wait(done));  // a fence and a semaphore of one submission have no order
  EXPECT_NE(x->as<float>(), ones) << "it ran after the gate";
  EXPECT_NE(x->as<float>()[0], 0.0F);
}

TEST_F(InEngine, ASubmissionThatNobodyLetsGoHoldsNobodyUp) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.patience = 20ms;
  adopted = vulkan::adopt(adoption).value();
  const VkSemaphore gate = engine->make_timeline();
  const EngineMemory x = engine->allocate(kBytes);
  Encoder encoder = adopted->encoder();
  rotate(encoder, wrapped(x));
  vulkan::submit(std::move(encoder), {.waits = {{gate, 1}}}).value().done().value();
  adopted.reset();
  EXPECT_TRUE(log.take().empty()) << "nothing in use was destroyed";
  EXPECT_GT(x.use_count(), 1) << "it is left, with all that it uses";
  engine->signal({gate, 1});
  engine->call<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle")(engine->device);
  engine.reset();
  EXPECT_TRUE(any_says(log.take(), "has not been destroyed"));
  new EngineMemory(x);  // NOLINT: the engine is gone, and what was left with it stays left
}

// Whether every use of the queue is inside of the lock.
struct Watched {
  static inline PFN_vkQueueSubmit original = nullptr;
  static inline std::atomic<int> inside = 0, outside = 0;
  static inline thread_local bool locked = false;

  static VkResult VKAPI_PTR submit(VkQueue queue, uint32_t count, const VkSubmitInfo* info, VkFence fence) {
    ++(locked ? inside : outside);
    return original(queue, count, info, fence);
  }
};

TEST_F(InEngine, AnotherThreadSharesTheQueueByTheLock) {
  vulkan::Adoption adoption = engine->adoption();
  adoption.with_queue = [this](const std::function<void()>& use) {
    const std::lock_guard lock(engine->queue_mutex);
    Watched::locked = true;
    use();
    Watched::locked = false;
  };
  adopted = vulkan::adopt(adoption).value();
  Watched::original = std::exchange(context().vk.vkQueueSubmit, Watched::submit);
  Watched::inside = Watched::outside = 0;

  const EngineMemory theirs = engine->allocate(kBytes);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (std::uint64_t value = 1; value <= 50 || !stop; ++value) {
      const VkCommandBuffer commands = engine->begin();
      engine->submit(commands, {engine->timeline, value});
      std::this_thread::yield();
    }
  });
  const EngineMemory x = engine->allocate(kBytes);
  const Buffer unmapped = vulkan::wrap(*adopted, VulkanEngine::foreign(x, false)).value();
  std::vector<std::byte> bytes(kBytes);
  for (int i = 0; i < 50; ++i) {
    Encoder encoder = adopted->encoder();
    rotate(encoder, unmapped);
    ASSERT_OK(std::move(encoder).submit());
    ASSERT_OK(unmapped.read(bytes));  // through the queue, too
  }
  stop = true;
  other.join();
  EXPECT_EQ(Watched::inside, 100);
  EXPECT_EQ(Watched::outside, 0);
}

TEST_F(InEngine, ALostDeviceIsAnErrorOfTheFence) {
  adopt();
  const VkCommandBuffer commands = engine->begin();
  const vulkan::TimelinePoint done = next();
  Encoder encoder = adopted->encoder();
  rotate(encoder, adopted->allocate(kBytes).value());
  const Fence fence = vulkan::record(std::move(encoder), {.commands = commands, .done = done}).value();
  engine->submit(commands, done);
  const auto original =
      std::exchange(context().vk.vkWaitSemaphores,
                    [](VkDevice, const VkSemaphoreWaitInfo*, uint64_t) -> VkResult { return VK_ERROR_DEVICE_LOST; });
  expect_error(fence.wait(), Errc::device_lost, {"vkWaitSemaphores"});
  context().vk.vkWaitSemaphores = original;
  expect_error(adopted->allocate(4), Errc::device_lost, {"open it anew"});
}

TEST_F(InEngine, ACacheGrowsByRecordedSteps) {
  adopt();
  const auto recorded = cache_steps(*adopted, [&](Encoder&& encoder) {
    const VkCommandBuffer commands = engine->begin();
    const vulkan::TimelinePoint done = next();
    const Fence fence = vulkan::record(std::move(encoder), {.commands = commands, .done = done}).value();
    engine->submit(commands, done);
    fence.wait().value();
  });
  Device owned = Device::open(options_under_test()).value();
  EXPECT_EQ(recorded,
            cache_steps(owned, [](Encoder&& encoder) { std::move(encoder).submit().value().wait().value(); }));
}

}  // namespace
}  // namespace rota::test
