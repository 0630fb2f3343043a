#include <gtest/gtest.h>

#include "in_metal_engine.h"

// What Rota refuses an engine, and with which words.

namespace rota::mtl {
namespace {

using test::expect_error;
using test::rotate;
using namespace std::chrono_literals;

TEST_F(InMetalEngine, WithoutAQueueOnlyRecordingWorks) {
  adopted = metal::adopt({.device = engine->device()}).value();
  const Memory x = engine->allocate(kBytes);
  Encoder refused = adopted->encoder();
  rotate(refused, wrapped(x));
  expect_error(std::move(refused).submit(), Errc::unsupported, {"submit", "without a queue", "metal::record()"});
  Encoder also = adopted->encoder();
  rotate(also, wrapped(x));
  expect_error(metal::submit(std::move(also), {}), Errc::unsupported, {"submit", "without a queue"});
  std::vector<std::byte> bytes(kBytes);
  EXPECT_OK(wrapped(x).read(bytes));

  Chain chain(*engine, *adopted);
  const auto commands = engine->begin();
  const Fence fence = chain.record(*commands);
  commands->commit();
  ASSERT_OK(fence.wait());
  EXPECT_NE(chain.read_back->floats()[0], 0.0F);
}

TEST_F(InMetalEngine, BadArgumentsAreRefused) {
  expect_error(metal::adopt({.queue = engine->queue()}), Errc::invalid_argument, {"adopt: device is null"});
  expect_error(metal::adopt({.device = engine->device(), .patience = -1ns}), Errc::invalid_argument,
               {"adopt: patience is below zero"});
  adopt();
  expect_error(metal::wrap(*adopted, {}), Errc::invalid_argument, {"wrap: buffer is null"});
  const Memory odd = engine->allocate(6);
  expect_error(metal::wrap(*adopted, {.buffer = odd->buffer()}), Errc::invalid_argument,
               {"wrap: the buffer's length is 6", "multiple of 4"});
  expect_error(metal::submit(adopted->encoder(), {.waits = {{}}}), Errc::invalid_argument,
               {"submit: waits[0].event is null"});
  expect_error(metal::submit(adopted->encoder(), {.signals = {{}}}), Errc::invalid_argument,
               {"submit: signals[0].event is null"});

  const auto commands = engine->begin();
  void* const encoder = commands->encoder();
  expect_error(metal::record(adopted->encoder(), {.encoder = encoder}), Errc::invalid_argument,
               {"record: commands is null"});
  expect_error(metal::record(adopted->encoder(), {.commands = commands->buffer()}), Errc::invalid_argument,
               {"record: encoder is null"});
  const auto other = engine->begin();
  commands->commit();
  expect_error(metal::record(adopted->encoder(), {.commands = commands->buffer(), .encoder = other->encoder()}),
               Errc::invalid_argument, {"record: commands is committed"});
  EXPECT_EQ(commands->error(), "");

  Encoder wrong = adopted->encoder();
  rotate(wrong, {});
  expect_error(metal::record(std::move(wrong), {}), Errc::invalid_argument, {"rope", "a view of no buffer"});
  Encoder moved = adopted->encoder();
  const Encoder elsewhere = std::move(moved);
  expect_error(metal::record(std::move(moved), {}), Errc::invalid_argument, {"the encoder"});  // NOLINT: on purpose
}

TEST_F(InMetalEngine, ObjectsOfAnotherDeviceAreRefused) {
  test::metal::set_device_count(2);
  const Engine other(1);
  test::metal::set_device_count(1);
  expect_error(metal::adopt({.device = engine->device(), .queue = other.queue()}), Errc::invalid_argument,
               {"adopt: queue is of another device"});
  adopt();
  const Memory theirs = other.allocate(kBytes);
  expect_error(metal::wrap(*adopted, {.buffer = theirs->buffer()}), Errc::invalid_argument,
               {"wrap: buffer is of another device"});
  const auto their_commands = other.begin();
  const auto commands = engine->begin();
  expect_error(
      metal::record(adopted->encoder(), {.commands = their_commands->buffer(), .encoder = their_commands->encoder()}),
      Errc::invalid_argument, {"record: commands is of another device"});
  expect_error(
      metal::record(adopted->encoder(), {.commands = commands->buffer(), .encoder = their_commands->encoder()}),
      Errc::invalid_argument, {"record: encoder is of another device"});
}

TEST_F(InMetalEngine, OnlyAnAdoptedDeviceTakesTheEnginesObjects) {
  const Memory x = engine->allocate(kBytes);
  for (const char* const id : {"cpu", "metal:0"}) {
    Device other = Device::open({.device = id}).value();
    expect_error(metal::wrap(other, {.buffer = x->buffer()}), Errc::invalid_argument,
                 {"wrap: the device is", id, "metal::adopt()"});
    expect_error(metal::submit(other.encoder(), {}), Errc::invalid_argument, {"submit: the device is", id});
    expect_error(metal::record(other.encoder(), {}), Errc::invalid_argument, {"record: the device is", id});
  }
}

TEST_F(InMetalEngine, MemoryThatRunsOutIsAnError) {
  adopt();
  test::metal::fail_allocation(1);
  expect_error(adopted->allocate(1000), Errc::out_of_memory, {"allocate: Metal refuses 1000 bytes"});
}

}  // namespace
}  // namespace rota::mtl
