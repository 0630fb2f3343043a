#include "ops/checksum/checksum.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "harness/on_device.h"
#include "harness/reserved.h"
#include "runtime/device_state.h"

// The pure half of `checksum`: every bad argument, and the launches that a good call leads to.

namespace rota::ops {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

// A sound call that tests spoil in one place.
struct Call {
  explicit Call(Device& device) : memory(device.allocate(4096).value()), sums(device.allocate(32).value()) {
    ranges = {{memory, 0, 4096}, {memory, 260, 1024}, {memory, 4096, 0}};
  }

  Checksum checksum() const { return {.of = ranges, .sums = sums, .sums_offset_bytes = sums_offset_bytes}; }

  Buffer memory, sums;
  std::uint64_t sums_offset_bytes = 12;
  std::vector<WordRange> ranges;
};

class ChecksumCheck : public ::testing::Test {
 protected:
  Result<ChecksumPlan> check(const Call& call) const { return check_checksum(call.checksum(), target); }

  void expect_refused(const std::function<void(Call&)>& spoil, std::initializer_list<std::string_view> texts) {
    Call call(device);
    spoil(call);
    test::expect_error(check(call), Errc::invalid_argument, texts);
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits};
};

TEST_F(ChecksumCheck, PlansAPartForEachRangeThatHoldsWords) {
  const auto plan = check(Call(device));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->sums.first_element, 3U);
  ASSERT_EQ(plan->parts.size(), 2U);
  EXPECT_EQ(plan->parts[0].range, 0U);
  EXPECT_EQ(plan->parts[0].bound.first_element, 0U);
  EXPECT_EQ(plan->parts[1].range, 1U);
  EXPECT_EQ(plan->parts[1].bound.bytes.begin, 256U);
  EXPECT_EQ(plan->parts[1].bound.first_element, 1U);
  EXPECT_EQ(plan->parts[1].bound.touched.end, 1284U);
}

TEST_F(ChecksumCheck, NoRangesTakeNoSums) {
  Call call(device);
  call.ranges.clear();
  call.sums_offset_bytes = 32;
  const auto plan = check(call);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->parts.empty());
}

TEST_F(ChecksumCheck, RefusesWhatIsNotWholeWords) {
  expect_refused([](Call& c) { c.ranges[1].offset_bytes = 262; },
                 {"checksum: of[1].offset_bytes is 262; wanted a multiple of 4"});
  expect_refused([](Call& c) { c.ranges[0].size_bytes = 4095; },
                 {"checksum: of[0].size_bytes is 4095; wanted a multiple of 4"});
  expect_refused([](Call& c) { c.sums_offset_bytes = 13; },
                 {"checksum: sums_offset_bytes is 13; wanted a multiple of 4"});
}

TEST_F(ChecksumCheck, RefusesRangesThatLeaveTheirBuffers) {
  expect_refused(
      [](Call& c) { c.ranges[0].offset_bytes = 4; },
      {"checksum: of[0] is a view that ends at byte 4100; wanted all of it inside its buffer of 4096 bytes"});
  expect_refused([](Call& c) { c.ranges[1].size_bytes = 4096; }, {"of[1] is a view that ends at byte 4356"});
  expect_refused([](Call& c) { c.ranges[1].size_bytes = kMax - 3; }, {"of[1] is a view that ends beyond 2^64 bytes"});
  expect_refused([](Call& c) { c.ranges[1].offset_bytes = kMax - 3; }, {"of[1] is a view that ends beyond 2^64 bytes"});
  expect_refused([](Call& c) { c.ranges[2].offset_bytes = 4100; }, {"of[2] is a view that ends at byte 4100"});
  expect_refused([](Call& c) { c.sums_offset_bytes = 24; }, {"checksum: sums is a view that ends at byte 36"});
  expect_refused([](Call& c) { c.sums_offset_bytes = kMax - 3; }, {"sums is a view that ends beyond 2^64 bytes"});
}

TEST_F(ChecksumCheck, RefusesMissingBuffersAndThoseOfOtherDevices) {
  expect_refused([](Call& c) { c.ranges[1].buffer = {}; }, {"checksum: of[1] is a view of no buffer"});
  expect_refused([](Call& c) { c.sums = {}; }, {"checksum: sums is a view of no buffer"});
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Call foreign(other);
  expect_refused([&](Call& c) { c.ranges[0].buffer = foreign.memory; }, {"of[0] is in a buffer of another device"});
  expect_refused([&](Call& c) { c.sums = foreign.sums; }, {"sums is in a buffer of another device"});
}

TEST_F(ChecksumCheck, RefusesSumsInsideAnyRange) {
  Call call(device);
  call.sums = call.memory;
  call.ranges = {{call.memory, 64, 64}, {call.memory, 256, 512}};
  for (const std::uint64_t offset_bytes : {56U, 128U, 248U, 768U}) {
    call.sums_offset_bytes = offset_bytes;
    EXPECT_OK(check(call));
  }
  call.sums_offset_bytes = 124;
  test::expect_error(check(call), Errc::invalid_argument,
                     {"checksum: sums is in bytes 124 to 132 of one buffer with of[0]", "outside of its 64 to 128"});
  call.sums_offset_bytes = 252;
  test::expect_error(check(call), Errc::invalid_argument, {"of one buffer with of[1]", "outside of its 256 to 768"});
}

TEST_F(ChecksumCheck, CutsWhatOneBindingCannotAddress) {
  Call call(device);
  call.ranges = {{call.memory, 252, 3000}, {call.memory, 8, 4}};
  for (const std::uint64_t most : {256U, 300U, 512U, 768U, 3252U, 3328U}) {
    SCOPED_TRACE(most);
    target.limits.max_binding_bytes = most;
    const auto plan = check(call);
    ASSERT_OK(plan);
    std::uint64_t next = 252;
    for (const ChecksumPlan::Part& part : plan->parts) {
      const auto& [bytes, touched, first_element] = part.bound;
      EXPECT_EQ(bytes.begin % runtime::kBindingAlignment, 0U);
      EXPECT_LE(core::round_up(bytes.size(), runtime::kUnitBytes), most);
      EXPECT_EQ(bytes.begin + 4 * first_element, touched.begin);
      if (part.range == 1) continue;
      EXPECT_EQ(touched.begin, next);
      next = touched.end;
    }
    EXPECT_EQ(next, 3252U);
    EXPECT_EQ(plan->parts.back().range, 1U);
    EXPECT_EQ(plan->parts.size() == 2, most == 3328) << "3252 is no multiple of the alignment";
  }
}

TEST_F(ChecksumCheck, RefusesSumsThatOneBindingCannotAddress) {
  Call call(device);
  call.sums = device.allocate(std::uint64_t{4} * 101).value();
  call.ranges.assign(98, {call.memory, 0, 4});
  target.id = "gpu:7";
  target.limits.max_binding_bytes = 400;
  test::expect_error(check(call), Errc::unsupported,
                     {"checksum: sums spans 404 bytes; gpu:7 can address 400 bytes in one binding"});
}

ChecksumPlan plan_of(const core::ByteRange& touched) {
  const core::ByteRange bytes{core::round_down(touched.begin, runtime::kBindingAlignment), touched.end};
  return {.parts = {{.range = 5, .bound = {bytes, touched, (touched.begin - bytes.begin) / 4}}},
          .sums = {{256, 292}, {268, 292}, 3}};
}

ChecksumLaunch launch_of(const core::ByteRange& touched) {
  const ChecksumPlan plan = plan_of(touched);
  return choose_checksum(plan, plan.parts.front());
}

TEST(ChecksumLaunch, SaysWordsAndSum) {
  const ChecksumLaunch launch = launch_of({260, 1260});
  EXPECT_EQ(launch.params.first, 1U);
  EXPECT_EQ(launch.params.words, 250U);
  EXPECT_EQ(launch.params.sum, 8U);
  EXPECT_EQ(launch.dispatch.groups, 1U);
  EXPECT_EQ(launch.dispatch.items, 1U);
  EXPECT_EQ(launch.dispatch.item_bytes, 65536U);
}

TEST(ChecksumLaunch, HasWorkForAllWords) {
  EXPECT_EQ(launch_of({0, 65536}).dispatch.items, 1U);
  EXPECT_EQ(launch_of({4, 65540}).dispatch.items, 2U);
  EXPECT_EQ(launch_of({0, 5U << 20}).dispatch.groups, 161U);
  const ChecksumLaunch large = launch_of({0, std::uint64_t{1} << 40});
  EXPECT_EQ(large.dispatch.items, std::uint64_t{1} << 24);
  EXPECT_EQ(large.dispatch.groups, kMaxChecksumGroups);
}

TEST(ChecksumLaunch, ClearsAllSums) {
  const ClearLaunch launch = choose_clear(plan_of({0, 4}));
  EXPECT_EQ(launch.params.first, 3U);
  EXPECT_EQ(launch.params.words, 6U);
  EXPECT_EQ(launch.dispatch.items, 6U);
  EXPECT_EQ(launch.dispatch.groups, 1U);
}

TEST(ChecksumCpu, GivesTheSameSumWithEveryInstructionSet) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> words(70'000);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  for (const std::uint64_t first : {0U, 1U, 15U, 17U, 63U}) {
    for (const std::uint64_t count : {1U, 2U, 16U, 255U, 256U, 257U, 300U, 1024U, 1087U, 5000U, 69'937U}) {
      const std::uint32_t wanted = std::accumulate(words.data() + first, words.data() + first + count, 3U);
      const ChecksumParams params{.first = first, .words = count, .sum = 1};
      for (const core::Isa isa : core::kIsas) {
        if (!core::runs_here(isa)) continue;
        std::array<std::uint32_t, 3> sums{1, 3, 2};
        checksum_cpu({.constants = {},
                      .params = &params,
                      .bound = {reinterpret_cast<std::byte*>(words.data()), reinterpret_cast<std::byte*>(sums.data())},
                      .first_item = 0,
                      .last_item = (first + count - 1) / kRowWords + 1},
                     isa);
        EXPECT_EQ(sums, (std::array<std::uint32_t, 3>{1, wanted, 2}))
            << core::name_of(isa) << ": " << first << ", " << count;
      }
    }
  }
}

TEST(ChecksumCpu, ReachesBeyond32BitsOfWords) {
  constexpr std::uint64_t kFarRow = (std::uint64_t{1} << 32) / kRowWords + 1;
  constexpr std::uint64_t kWords = (kFarRow + 1) * kRowWords;
  const test::Reserved memory(kWords * 4);
  constexpr std::array<std::uint32_t, 2> kEnds{40, 2};
  std::memcpy(memory.data() + (kWords - 2) * 4, kEnds.data(), sizeof(kEnds));
  std::uint32_t sum = 0;
  const ChecksumParams params{.first = 1, .words = kWords - 2, .sum = 0};  // all but the first word and the last
  checksum_cpu({.constants = {},
                .params = &params,
                .bound = {memory.data(), reinterpret_cast<std::byte*>(&sum)},
                .first_item = kFarRow,
                .last_item = kFarRow + 1});
  EXPECT_EQ(sum, 40U);
}

}  // namespace
}  // namespace rota::ops
