#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "harness/on_device.h"
#include "ops/store/store_reference.h"
#include "runtime/device_state.h"
#include "runtime/recorder.h"

namespace rota::test {
namespace {

class Runtime : public OnDevice {
 protected:
  std::mt19937_64 random{11};
};

constexpr SlotShape kPool{.page_slots = 16, .heads = 2, .dim = 8};
constexpr std::uint64_t kSlotElements = 2 * 8;

// One token whose elements all equal `value`, written to `slot` of a contiguous f32 cache.
void store_value(Encoder& encoder, const Buffer& cache, const Buffer& token, std::uint64_t slot) {
  const StorePair pair{View::token_major(token, DType::f32, {.tokens = 1, .heads = 2, .dim = 8}),
                       SlotView::token_major(cache, DType::f32, kPool)};
  const TokenRun run{.tokens = 1, .position = slot, .capacity = kPool.page_slots};
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
}

Buffer token_of(Device& device, float value) {
  Buffer token = device.allocate(kSlotElements * 4).value();
  const std::vector<float> values(kSlotElements, value);
  token.write(std::as_bytes(std::span(values))).value();
  return token;
}

float slot_value(const Buffer& cache, std::uint64_t slot) {
  std::vector<float> values(kSlotElements);
  cache.read(std::as_writable_bytes(std::span(values)), slot * kSlotElements * 4).value();
  EXPECT_TRUE(std::ranges::all_of(values, [&](float value) { return value == values.front(); }));
  return values.front();
}

TEST_F(Runtime, AnEncoderKeepsItsFirstErrorAndRunsNothing) {
  auto pair = make_pair(device, random, {.tokens = 1, .pool = kPool});
  const TokenRun good{.tokens = 1, .position = 0, .capacity = 16};
  const TokenRun bad{.tokens = 1, .position = 0, .capacity = 0};
  const TokenRun worse{.tokens = 2, .position = 0, .capacity = 16};
  Encoder encoder = device.encoder();
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&good, 1}});
  EXPECT_OK(encoder.status());
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&bad, 1}});
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&worse, 1}});
  expect_error(encoder.status(), Errc::invalid_argument, {"capacity"});
  expect_error(std::move(encoder).submit(), Errc::invalid_argument, {"sequences[0].capacity is 0"});
  pair.expect_as_defined();
}

TEST_F(Runtime, AnEmptySubmissionFinishes) {
  Fence fence = device.encoder().submit().value();
  EXPECT_OK(fence.wait());
  EXPECT_OK(fence.wait());
}

TEST_F(Runtime, AnEncoderThatWasSubmittedIsSpent) {
  Encoder encoder = device.encoder();
  EXPECT_OK(std::move(encoder).submit());
  auto pair = make_pair(device, random, {.tokens = 1, .pool = kPool});
  const TokenRun run{.tokens = 1, .position = 0, .capacity = 16};
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&run, 1}});  // NOLINT(bugprone-use-after-move): the subject
  expect_error(std::move(encoder).submit(), Errc::invalid_argument, {"submitted already"});
}

TEST_F(Runtime, HandlesThatWereMovedFromAreRefused) {
  Fence fence = device.encoder().submit().value();
  const Fence taken = std::move(fence);
  EXPECT_OK(taken.wait());
  expect_error(fence.wait(), Errc::invalid_argument,
               {"the fence is empty or moved from"});  // NOLINT(bugprone-use-after-move)

  Device first = device;
  const Device second = std::move(first);
  expect_error(first.allocate(4), Errc::invalid_argument, {"the device is moved from"});  // NOLINT
  expect_error(first.save_pipelines(), Errc::invalid_argument, {"moved from"});
  expect_error(first.encoder().submit(), Errc::invalid_argument, {"moved from"});
  EXPECT_EQ(first.info().id, "");
}

TEST_F(Runtime, AFenceTellsWhetherItsSubmissionIsDone) {
  using namespace std::chrono_literals;
  Buffer cache = device.allocate(16 * kSlotElements * 4).value();
  Encoder encoder = device.encoder();
  for (int i = 0; i < 20; ++i) store_value(encoder, cache, token_of(device, 7), 1);
  const Fence fence = std::move(encoder).submit().value();
  EXPECT_OK(fence.done());
  EXPECT_OK(fence.wait_for(1ns));
  EXPECT_OK(fence.wait_for(-1h));
  EXPECT_TRUE(fence.wait_for(1h).value());
  EXPECT_TRUE(fence.wait_for(std::chrono::nanoseconds::max()).value());
  EXPECT_TRUE(fence.done().value());
  EXPECT_EQ(slot_value(cache, 1), 7.0F);
  expect_error(Fence().wait(), Errc::invalid_argument, {"the fence is empty"});
  expect_error(Fence().done(), Errc::invalid_argument, {"the fence is empty"});
}

TEST_F(Runtime, FinishedWorkLetsGoOfItsMemory) {
  Buffer cache = device.allocate(16 * kSlotElements * 4).value();
  std::weak_ptr<runtime::Memory> memory;
  {
    const Buffer token = token_of(device, 1);
    memory = runtime::Inside::of(token)->memory();
    Encoder encoder = device.encoder();
    store_value(encoder, cache, token, 0);
    (void)std::move(encoder).submit().value();
  }
  EXPECT_EQ(slot_value(cache, 0), 1.0F);  // so it has finished
  for (int tries = 0; !memory.expired() && tries < 30'000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_OK(device.allocate(16));
  }
  EXPECT_TRUE(memory.expired());
}

TEST_F(Runtime, TheCallersRoundingModeChangesNothing) {
  std::fesetround(FE_UPWARD);
  Device opened = open_another();
  // Rows of 7 take the portable path, and there are enough of them for every thread of the pool.
  auto pair = make_pair(opened, random, {.tokens = 8192, .pool = {.page_slots = 8192, .heads = 2, .dim = 7}});
  const Status status = run_store(opened, {pair.view}, {{.tokens = 8192, .position = 0, .capacity = 8192}});
  std::fesetround(FE_TONEAREST);
  ASSERT_OK(status);
  pair.store_by_definition({{.tokens = 8192, .position = 0, .capacity = 8192}});
  pair.expect_as_defined();
}

TEST_F(Runtime, SubmissionsRunInTheirOrder) {
  Buffer cache = device.allocate(16 * kSlotElements * 4).value();
  std::vector<Fence> fences;
  for (int i = 0; i < 50; ++i) {
    Encoder encoder = device.encoder();
    store_value(encoder, cache, token_of(device, static_cast<float>(i)), 3);  // the token's handle is gone at once
    fences.push_back(std::move(encoder).submit().value());
  }
  ASSERT_OK(fences.back().wait());
  EXPECT_EQ(slot_value(cache, 3), 49.0F);
  for (const Fence& fence : fences) EXPECT_OK(fence.wait());
}

TEST_F(Runtime, ReadsAndWritesWaitForTheCommandsBeforeThem) {
  Buffer cache = device.allocate(16 * kSlotElements * 4).value();
  Buffer token = token_of(device, 1);
  for (int i = 0; i < 50; ++i) {
    Encoder encoder = device.encoder();
    store_value(encoder, cache, token, 5);
    (void)std::move(encoder).submit().value();
    const std::vector<float> next(kSlotElements, static_cast<float>(i) + 100);
    ASSERT_OK(token.write(std::as_bytes(std::span(next))));  // must not overtake the command that reads it
    EXPECT_EQ(slot_value(cache, 5), i == 0 ? 1.0F : static_cast<float>(i) + 99);
  }
}

TEST_F(Runtime, ManyThreadsRecordAndSubmitAtOnce) {
  constexpr std::size_t kThreads = 8;
  constexpr std::uint64_t kRounds = 25;
  Buffer shared = device.allocate(16 * kSlotElements * 4).value();
  std::vector<std::thread> threads;
  std::vector<Status> outcomes(kThreads);
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Buffer own = device.allocate(16 * kSlotElements * 4).value();
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const auto value = static_cast<float>(t * 1000 + round);
        Buffer token = token_of(device, value);
        Encoder encoder = device.encoder();
        store_value(encoder, own, token, round % 16);
        store_value(encoder, shared, token, t);
        auto fence = std::move(encoder).submit();
        outcomes[t] = fence ? fence->wait() : Status(fence.error());
        if (!outcomes[t]) return;
        if (slot_value(own, round % 16) != value) {
          outcomes[t] = Error{Errc::internal, "a thread lost its own token"};
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) EXPECT_OK(outcome);
  for (std::uint64_t t = 0; t < kThreads; ++t)
    EXPECT_EQ(slot_value(shared, t), static_cast<float>(t * 1000 + kRounds - 1));
}

TEST_F(Runtime, ManyThreadsMayWaitForOneFence) {
  Buffer cache = device.allocate(16 * kSlotElements * 4).value();
  for (int round = 0; round < 10; ++round) {
    Encoder encoder = device.encoder();
    for (std::uint64_t slot = 0; slot < 16; ++slot) store_value(encoder, cache, token_of(device, 2), slot);
    const Fence fence = std::move(encoder).submit().value();
    std::vector<std::thread> threads;
    std::atomic<int> fine = 0;
    for (int i = 0; i < 6; ++i) threads.emplace_back([&] { fine += fence.wait().ok() ? 1 : 0; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fine, 6);
  }
}

TEST_F(Runtime, HandlesMayGoInAnyOrderWhileWorkIsInFlight) {
  std::array<int, 4> order{0, 1, 2, 3};
  do {
    std::optional<Device> own(open_another());
    std::optional<Buffer> cache(own->allocate(16 * kSlotElements * 4).value());
    std::optional<Encoder> unsubmitted(own->encoder());
    store_value(*unsubmitted, *cache, token_of(*own, 1), 2);
    std::optional<Fence> fence;
    {
      Encoder encoder = own->encoder();
      for (int i = 0; i < 20; ++i) store_value(encoder, *cache, token_of(*own, 7), 1);
      fence.emplace(std::move(encoder).submit().value());
    }
    for (const int handle : order) {
      if (handle == 0) own.reset();
      if (handle == 1) {
        EXPECT_EQ(slot_value(*cache, 1), 7.0F);
        cache.reset();
      }
      if (handle == 2) {
        EXPECT_OK(fence->wait());
        fence.reset();
      }
      if (handle == 3) unsubmitted.reset();
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(Runtime, TheLastHandleWaitsForWhatNobodyWaitedFor) {
  for (const bool fence_last : {false, true}) {
    std::optional<Device> own(open_another());
    std::optional<Fence> fence;
    {
      const Buffer cache = own->allocate(16 * kSlotElements * 4).value();
      Encoder encoder = own->encoder();
      for (int i = 0; i < 100; ++i) store_value(encoder, cache, token_of(*own, 7), 1);
      fence.emplace(std::move(encoder).submit().value());
    }
    if (fence_last) own.reset();
    fence.reset();
  }
}

TEST_F(Runtime, AnEncoderMayBeDroppedUnsubmitted) {
  auto pair = make_pair(device, random, {.tokens = 1, .pool = kPool});
  const TokenRun run{.tokens = 1, .position = 0, .capacity = 16};
  {
    Encoder encoder = device.encoder();
    store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&run, 1}});
  }
  pair.expect_as_defined();
}

TEST_F(Runtime, UploadsLargerThanABlockAndManySmallOnesAreFine) {
  auto pair = make_pair(device, random, {.tokens = 40'000, .pool = {.page_slots = 64, .heads = 1, .dim = 2}});
  Encoder encoder = device.encoder();
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const StorePair part{pair.view.from.slice(i, 1), pair.view.to};
    const TokenRun run{.tokens = 1, .position = i, .capacity = 64};
    store(encoder, {.pairs = {&part, 1}, .sequences = {&run, 1}});
  }
  const TokenRun all{.tokens = 40'000, .position = 0, .capacity = 64};
  store(encoder, {.pairs = {&pair.view, 1}, .sequences = {&all, 1}});
  ASSERT_OK(std::move(encoder).submit().value().wait());
  pair.store_by_definition({{.tokens = 40'000, .position = 0, .capacity = 64}});
  pair.expect_as_defined();

  auto large = make_pair(device, random, {.tokens = 40'000, .pool = {.page_slots = 40'000, .heads = 1, .dim = 2}});
  ASSERT_OK(run_store(device, {large.view}, {{.tokens = 40'000, .position = 5, .capacity = 40'000}}));
  large.store_by_definition({{.tokens = 40'000, .position = 5, .capacity = 40'000}});
  large.expect_as_defined();
}

TEST_F(Runtime, BuffersRefuseWhatLiesOutside) {
  Buffer buffer = device.allocate(16).value();
  std::array<std::byte, 17> bytes{};
  const std::span all(bytes);
  expect_error(buffer.write(all), Errc::invalid_argument, {"Buffer::write", "17 bytes from byte 0 on", "16 bytes"});
  expect_error(buffer.read(all), Errc::invalid_argument, {"Buffer::read"});
  expect_error(buffer.read(all.first(1), 16), Errc::invalid_argument, {"1 bytes from byte 16 on"});
  expect_error(buffer.read(all.first(1), ~std::uint64_t{0}), Errc::invalid_argument, {"18446744073709551615"});
  EXPECT_OK(buffer.read(all.first(0), 16));
  EXPECT_OK(buffer.write(all.first(1), 15));
  expect_error(Buffer().read(all), Errc::invalid_argument, {"empty"});
  EXPECT_EQ(Buffer().size_bytes(), 0U);
}

TEST_F(Runtime, AllocationsThatCannotBeAreErrors) {
  expect_error(device.allocate(0), Errc::invalid_argument, {"allocate: bytes is 0; wanted at least 1"});
  expect_error(device.allocate(std::uint64_t{1} << 60), Errc::out_of_memory, {"1152921504606846976"});
  expect_error(device.allocate(~std::uint64_t{0}), Errc::out_of_memory, {"18446744073709551615"});
}

TEST_F(Runtime, ABufferOfAnotherDeviceIsRefused) {
  Device other = open_another();
  auto pair = make_pair(device, random, {.tokens = 1, .pool = kPool});
  auto foreign = make_pair(other, random, {.tokens = 1, .pool = kPool});
  pair.view.from.buffer = foreign.view.from.buffer;
  expect_error(run_store(device, {pair.view}, {{.tokens = 1, .position = 0, .capacity = 16}}), Errc::invalid_argument,
               {"pairs[0].from is in a buffer of another device"});
}

TEST_F(Runtime, CallsOfOneEncoderShareTheirScratch) {
  Encoder encoder = device.encoder();
  runtime::record(encoder, [](runtime::Recorder& recorder) -> Status {
    const auto first = recorder.scratch({1000, 1}).value();
    EXPECT_EQ(first[0].memory, first[1].memory);
    EXPECT_GE(first[0].bytes.size(), 1000U);
    EXPECT_GE(first[1].bytes.begin, first[0].bytes.end);
    EXPECT_EQ(recorder.scratch({500}).value()[0].memory, first[0].memory);
    const auto larger = recorder.scratch({first[0].memory->size_bytes() + 1}).value();
    EXPECT_NE(larger[0].memory, first[0].memory);
    EXPECT_EQ(recorder.scratch({1000}).value()[0].memory, larger[0].memory);
    return {};
  });
  EXPECT_OK(std::move(encoder).submit());
}

TEST_F(Runtime, TheSelfTestPasses) {
  Device reference = Device::open({.device = "cpu", .threads = 1}).value();
  const auto results = self_test(device, reference).value();
  EXPECT_FALSE(results.empty());
  for (const SelfTestResult& result : results) EXPECT_OK(result.status);
}

TEST(OpenDevice, SaysWhatIsWrong) {
  expect_error(Device::open({.device = "abacus"}), Errc::no_device, {"\"abacus\"", "this build has: cpu"});
  expect_error(Device::open({.device = ""}), Errc::no_device, {"\"\""});
  expect_error(Device::open({.device = "cpu:1"}), Errc::no_device, {"\"cpu:1\""});
  expect_error(Device::open({.device = "cpu", .threads = 100'000}), Errc::invalid_argument,
               {"open: threads is 100000; wanted at most 1024"});
}

TEST(OpenDevice, BestIsOneThatIsHere) {
  const Device best = Device::open_best().value();
  bool listed = false;
  for (const BackendReport& report : list_backends().value()) {
    for (const DeviceInfo& info : report.devices) listed = listed || info.id == best.info().id;
  }
  EXPECT_TRUE(listed);
}

}  // namespace
}  // namespace rota::test
