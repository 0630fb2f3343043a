#include <gtest/gtest.h>

#include <random>

#include "harness/on_device.h"
#include "in_metal_engine.h"
#include "ops/store/store_reference.h"
#include "software_metal.h"

// Failures are Metal's own, asked for from software Metal.

namespace rota::mtl {
namespace {

using test::expect_error;
using test::make_pair;
using test::run_store;
using test::metal::Fault;

class OnMetal : public test::OnDevice {
 protected:
  test::PairUnderTest small_pair() {
    return make_pair(device, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  }
  Status run(const test::PairUnderTest& pair) { return run_store(device, {pair.view}, runs_of(sequences)); }

  const std::vector<test::Sequence> sequences{{.tokens = 4, .position = 6, .capacity = 8}};
  std::mt19937_64 random{3};
};

TEST_F(OnMetal, ALibraryThatDoesNotCompileIsAnErrorAndIsTriedAgain) {
  auto pair = small_pair();
  test::metal::fail_next(Fault::library);
  expect_error(run(pair), Errc::pipeline_failed, {"store: Metal does not compile the kernel: "});
  ASSERT_OK(run(pair));
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

TEST_F(OnMetal, APipelineThatIsRefusedIsAnErrorAndIsTriedAgain) {
  auto pair = small_pair();
  test::metal::fail_next(Fault::pipeline);
  expect_error(run(pair), Errc::pipeline_failed, {"store: Metal refuses the pipeline: "});
  ASSERT_OK(run(pair));
}

TEST_F(OnMetal, MemoryThatRunsOutIsAnError) {
  test::metal::fail_allocation(1);
  expect_error(device.allocate(1000), Errc::out_of_memory, {"allocate: Metal refuses 1000 bytes"});
  EXPECT_OK(device.allocate(1000));
}

TEST_F(OnMetal, ACommandBufferThatEndsInErrorLosesTheDevice) {
  auto pair = small_pair();
  ASSERT_OK(run(pair));
  test::metal::fail_next(Fault::command_buffer);
  expect_error(run(pair), Errc::device_lost, {"Metal ended a command buffer in error", "open it anew"});
  EXPECT_EQ(log.take().size(), 1U);
  expect_error(run(pair), Errc::device_lost, {"open it anew"});
  expect_error(device.allocate(16), Errc::device_lost, {"open it anew"});
  std::array<std::byte, 4> bytes{};
  expect_error(pair.view.to.buffer.read(bytes), Errc::device_lost, {"open it anew"});
  EXPECT_TRUE(log.take().empty());  // the words come once

  Device again = open_another();
  auto fresh = make_pair(again, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  EXPECT_OK(run_store(again, {fresh.view}, runs_of(sequences)));
}

TEST_F(OnMetal, AnErrorOfASubmissionThatNobodyWaitsForIsNotLost) {
  auto pair = small_pair();
  test::metal::fail_next(Fault::command_buffer);
  Encoder encoder = device.encoder();
  const std::vector<TokenRun> runs = runs_of(sequences);
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = runs});
  ASSERT_OK(std::move(encoder).submit());
  std::array<std::byte, 4> bytes{};
  expect_error(pair.view.to.buffer.read(bytes), Errc::device_lost, {"open it anew"});
  log.take();
}

TEST_F(OnMetal, ALongBatchIsSeveralCommandBuffers) {
  auto pair = small_pair();
  const std::vector<TokenRun> runs = runs_of(sequences);
  ASSERT_OK(run(pair));
  Encoder encoder = device.encoder();
  for (int i = 0; i < 130; ++i) store(encoder, {.pairs = {&pair.view, 1}, .sequences = runs});
  Fence fence = [&] {
    const test::metal::Hold hold;
    Fence made = std::move(encoder).submit().value();
    EXPECT_EQ(test::metal::live(Kind::command_buffer), 3U);  // of 64 dispatches at most
    return made;
  }();
  ASSERT_OK(fence.wait());
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

TEST_F(OnMetal, MoreSubmissionsThanTheQueueTakesWait) {
  auto pair = small_pair();
  for (int i = 0; i < 300; ++i) {
    Encoder encoder = device.encoder();
    const std::vector<TokenRun> runs = runs_of(sequences);
    store(encoder, {.pairs = {&pair.view, 1}, .sequences = runs});
    ASSERT_OK(std::move(encoder).submit());
  }
  pair.store_by_definition(sequences);
  pair.expect_as_defined();
}

TEST(OpenMetal, SaysWhatIsWrong) {
  expect_error(Device::open({.device = "metal:1"}), Errc::no_device, {"no \"metal:1\"; Metal offers 1 device"});
  expect_error(Device::open({.device = "metal:x"}), Errc::no_device, {"wanted metal:<index>"});
  test::metal::set_device_count(0);
  expect_error(Device::open({.device = "metal:0"}), Errc::no_device, {"the system offers no device"});
  test::metal::set_device_count(1);
}

TEST(OpenMetal, TellsWhatTheDeviceCanDo) {
  const Device device = Device::open({.device = "metal"}).value();
  const DeviceInfo& info = device.info();
  EXPECT_EQ(info.id, "metal:0");
  EXPECT_EQ(info.kind, DeviceKind::integrated_gpu);
  EXPECT_EQ(info.limits.shared_memory_bytes, 32768U);
  EXPECT_EQ(info.limits.max_workgroup_size, 1024U);
  EXPECT_EQ(info.limits.max_binding_bytes % 256, 0U);
  EXPECT_LT(info.limits.max_binding_bytes, std::uint64_t{1} << 32);
  EXPECT_NE(std::ranges::find(info.features, "Apple7"), info.features.end());
}

// After all of the above.
TEST(ZzzMetal, LeavesNoObjectBehind) { expect_no_objects(); }

}  // namespace
}  // namespace rota::mtl
