#include "ops/merge/merge.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "harness/on_device.h"
#include "harness/reserved.h"
#include "runtime/device_state.h"

// The pure half of `merge`: every bad argument, and the launch that a good call leads to.

namespace rota::ops {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
constexpr Shape kShape{.tokens = 5, .heads = 2, .dim = 8};
constexpr Shape kLogShape{.tokens = 5, .heads = 2, .dim = 1};

// A sound call that tests spoil in one place.
struct Call {
  explicit Call(Device& device) {
    const auto buffer = [&](std::uint64_t bytes) { return device.allocate(bytes).value(); };
    merge = {.first = {View::token_major(buffer(320), DType::f32, kShape),
                       View::token_major(buffer(40), DType::f32, kLogShape)},
             .second = {View::token_major(buffer(160), DType::f16, kShape),
                        View::token_major(buffer(20), DType::bf16, kLogShape)},
             .out = MutView::token_major(buffer(160), DType::f16, kShape),
             .log_sum_exp = MutView::token_major(buffer(40), DType::f32, kLogShape)};
  }

  MutView& log() { return *merge.log_sum_exp; }

  Merge merge;
};

class MergeCheck : public ::testing::Test {
 protected:
  Result<MergePlan> check(const Call& call) const { return check_merge(call.merge, target); }

  void expect_refused(const std::function<void(Call&)>& spoil, std::initializer_list<std::string_view> texts) {
    Call call(device);
    spoil(call);
    test::expect_error(check(call), Errc::invalid_argument, texts);
  }

  void expect_accepted(const std::function<void(Call&)>& change, std::uint32_t outs_in_place,
                       std::uint32_t logs_in_place) {
    Call call(device);
    change(call);
    const auto plan = check(call);
    ASSERT_OK(plan);
    EXPECT_EQ(plan->outs_in_place, outs_in_place);
    EXPECT_EQ(plan->logs_in_place, logs_in_place);
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits};
};

MutView writable(const View& view) {
  return {view.buffer, view.dtype, view.shape, view.offset, view.token_stride, view.head_stride, view.dim_stride};
}

TEST_F(MergeCheck, AcceptsASoundCall) {
  expect_accepted([](Call&) {}, kNoPart, kNoPart);
  expect_accepted([](Call& c) { c.merge.log_sum_exp.reset(); }, kNoPart, kNoPart);
  expect_accepted([](Call& c) { c.merge.first.out.token_stride = 0; }, kNoPart, kNoPart);  // one token for all
}

TEST_F(MergeCheck, RefusesShapesThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.merge.first.out.shape.tokens = 4; },
                 {"merge: first.out.shape.tokens is 4; wanted 5, as out.shape.tokens is"});
  expect_refused([](Call& c) { c.merge.second.out.shape.heads = 1; },
                 {"second.out.shape.heads is 1; wanted 2, as out.shape.heads is"});
  expect_refused([](Call& c) { c.merge.second.out.shape.dim = 7; },
                 {"second.out.shape.dim is 7; wanted 8, as out.shape.dim is"});
  expect_refused([](Call& c) { c.merge.first.log_sum_exp.shape.tokens = 6; },
                 {"first.log_sum_exp.shape.tokens is 6; wanted 5, as out.shape.tokens is"});
  expect_refused([](Call& c) { c.merge.second.log_sum_exp.shape.heads = 0; },
                 {"second.log_sum_exp.shape.heads is 0; wanted 2, as out.shape.heads is"});
  expect_refused([](Call& c) { c.merge.first.log_sum_exp.shape.dim = 8; },
                 {"first.log_sum_exp.shape.dim is 8; wanted 1: a number per row"});
  expect_refused([](Call& c) { c.merge.second.log_sum_exp.shape.dim = 0; },
                 {"second.log_sum_exp.shape.dim is 0; wanted 1"});
  expect_refused([](Call& c) { c.log().shape.tokens = 1; },
                 {"merge: log_sum_exp.shape.tokens is 1; wanted 5, as out.shape.tokens is"});
  expect_refused([](Call& c) { c.log().shape.heads = kMax; },
                 {"merge: log_sum_exp.shape.heads is 18446744073709551615"});
  expect_refused([](Call& c) { c.log().shape.dim = 2; }, {"merge: log_sum_exp.shape.dim is 2; wanted 1"});
}

TEST_F(MergeCheck, RefusesSizesThatKernelsDoNotCount) {
  const auto resize = [](Call& c, Shape shape) {
    c.merge.first.out.shape = c.merge.second.out.shape = c.merge.out.shape = shape;
    shape.dim = 1;
    c.merge.first.log_sum_exp.shape = c.merge.second.log_sum_exp.shape = c.log().shape = shape;
  };
  expect_refused([&](Call& c) { resize(c, {.tokens = std::uint64_t{1} << 32, .heads = 2, .dim = 8}); },
                 {"merge: out.shape.tokens is 4294967296; wanted at most 4294967295"});
  expect_refused([&](Call& c) { resize(c, {.tokens = 5, .heads = kMax, .dim = 8}); },
                 {"merge: out.shape.heads is", "at most 4294967295"});
  expect_refused([&](Call& c) { resize(c, {.tokens = 5, .heads = 2, .dim = 0}); },
                 {"merge: out.shape.dim is 0; wanted at least 1"});
  expect_refused([&](Call& c) { resize(c, {.tokens = 5, .heads = 2, .dim = 4097}); },
                 {"merge: out.shape.dim is 4097; wanted at most 4096"});
  expect_accepted([&](Call& c) { resize(c, {.tokens = 0, .heads = 2, .dim = 8}); }, kNoPart, kNoPart);
  expect_accepted([&](Call& c) { resize(c, {.tokens = 5, .heads = 0, .dim = 8}); }, kNoPart, kNoPart);
}

// What is refused of every view, by its name.
template <class Get>
void expect_bad_views_refused(const std::function<void(const std::function<void(Call&)>&, std::string_view)>& refused,
                              const Get& get) {
  refused([&](Call& c) { get(c).buffer = {}; }, " is a view of no buffer");
  refused([&](Call& c) { get(c).dtype = static_cast<DType>(3); }, " is of dtype 3; wanted f32, f16, bf16");
  refused([&](Call& c) { get(c).offset = 1; }, " is a view that ends at byte");
  refused([&](Call& c) { get(c) = get(c).slice(2, 5); }, " is a slice that leaves its view");
  refused([&](Call& c) { get(c).token_stride = kMax; }, " is a view that ends beyond 2^64 bytes");
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Buffer foreign = other.allocate(1024).value();
  refused([&](Call& c) { get(c).buffer = foreign; }, " is in a buffer of another device (cpu)");
}

TEST_F(MergeCheck, RefusesBadViews) {
  const auto refused_as = [this](std::string name) {
    return [this, name](const std::function<void(Call&)>& spoil, std::string_view text) {
      const std::string whole = "merge: " + name + std::string(text);
      expect_refused(spoil, {whole});
    };
  };
  expect_bad_views_refused(refused_as("first.out"), [](Call& c) -> View& { return c.merge.first.out; });
  expect_bad_views_refused(refused_as("second.out"), [](Call& c) -> View& { return c.merge.second.out; });
  expect_bad_views_refused(refused_as("first.log_sum_exp"), [](Call& c) -> View& { return c.merge.first.log_sum_exp; });
  expect_bad_views_refused(refused_as("second.log_sum_exp"),
                           [](Call& c) -> View& { return c.merge.second.log_sum_exp; });
  expect_bad_views_refused(refused_as("out"), [](Call& c) -> MutView& { return c.merge.out; });
  expect_bad_views_refused(refused_as("log_sum_exp"), [](Call& c) -> MutView& { return c.log(); });
}

TEST_F(MergeCheck, RefusesResultsThatShareElements) {
  expect_refused([](Call& c) { c.merge.out.token_stride = 0; }, {"merge: out is a layout with strides", "of its own"});
  expect_refused([](Call& c) { c.merge.out.head_stride = 7; }, {"merge: out", "of its own"});
  expect_refused([](Call& c) { c.log().token_stride = 1; }, {"merge: log_sum_exp is a layout", "of its own"});
}

TEST_F(MergeCheck, AResultMayLieWhereAPartsOwnIs) {
  expect_accepted([](Call& c) { c.merge.out = writable(c.merge.first.out); }, kFirstPart, kNoPart);
  expect_accepted([](Call& c) { c.merge.out = writable(c.merge.second.out); }, kSecondPart, kNoPart);
  expect_accepted([](Call& c) { c.log() = writable(c.merge.first.log_sum_exp); }, kNoPart, kFirstPart);
  expect_accepted([](Call& c) { c.log() = writable(c.merge.second.log_sum_exp); }, kNoPart, kSecondPart);
  expect_accepted(
      [](Call& c) {
        c.merge.second = c.merge.first;
        c.merge.out = writable(c.merge.first.out);
        c.log() = writable(c.merge.first.log_sum_exp);
      },
      kBothParts, kBothParts);
  expect_accepted(
      [](Call& c) {
        c.merge.out = writable(c.merge.first.out);
        c.log() = writable(c.merge.second.log_sum_exp);
      },
      kFirstPart, kSecondPart);
}

TEST_F(MergeCheck, RefusesResultsThatOverlapAPartOtherwise) {
  const Buffer big = device.allocate(1024).value();
  const auto overlap = [&](View& source, MutView& result, std::uint64_t offset) {
    source.buffer = result.buffer = big;
    source.dtype = result.dtype = DType::f16;
    source.offset = offset;
  };
  expect_accepted([&](Call& c) { overlap(c.merge.first.out, c.merge.out, 80); }, kNoPart, kNoPart);
  expect_refused(
      [&](Call& c) { overlap(c.merge.first.out, c.merge.out, 78); },
      {"merge: first.out is in bytes 156 to 316 of one buffer with out; wanted bytes outside of its 0 to 160, "
       "or exactly its place"});
  expect_refused([&](Call& c) { overlap(c.merge.second.out, c.merge.out, 1); },
                 {"merge: second.out is in bytes", "with out; wanted bytes outside of its 0 to 160, or exactly"});
  expect_refused(
      [&](Call& c) {
        overlap(c.merge.first.out, c.merge.out, 0);
        c.merge.first.out.dtype = DType::bf16;
      },
      {"merge: first.out is in bytes 0 to 160"});
  expect_refused(
      [&](Call& c) {
        overlap(c.merge.second.out, c.merge.out, 0);
        c.merge.second.out.token_stride = 20;
      },
      {"merge: second.out is in bytes"});
  expect_refused([&](Call& c) { overlap(c.merge.first.log_sum_exp, c.log(), 1); },
                 {"merge: first.log_sum_exp is in bytes", "with log_sum_exp", ", or exactly its place"});
  expect_refused([&](Call& c) { overlap(c.merge.second.log_sum_exp, c.log(), 9); },
                 {"merge: second.log_sum_exp is in bytes 16 to 40"});
  // Of the other kind there is no place of its own.
  expect_refused(
      [&](Call& c) { overlap(c.merge.first.log_sum_exp, c.merge.out, 79); },
      {"merge: first.log_sum_exp is in bytes 156 to 180 of one buffer with out; wanted bytes outside of its 0 "
       "to 160"});
  expect_refused([&](Call& c) { overlap(c.merge.second.out, c.log(), 0); },
                 {"merge: second.out is in bytes 0 to 160 of one buffer with log_sum_exp; wanted bytes outside"});
  expect_refused(
      [&](Call& c) {
        c.merge.out.buffer = c.log().buffer = big;
        c.log().offset = 39;
      },
      {"merge: log_sum_exp is in bytes 156 to 196 of one buffer with out; wanted bytes outside of its 0 to 160"});
  expect_refused(
      [&](Call& c) {  // one number per row in both: still another kind
        for (View* view : {&c.merge.first.out, &c.merge.second.out}) view->shape.dim = 1;
        c.merge.out.shape.dim = 1;
        c.merge.out = writable(c.merge.first.log_sum_exp);
      },
      {"merge: first.log_sum_exp is in bytes 0 to 40 of one buffer with out"});
}

TEST_F(MergeCheck, RefusesWhatOneBindingCannotAddressAndSaysTheLimit) {
  const Call call(device);
  target.id = "gpu:7";
  target.limits.max_binding_bytes = 316;
  test::expect_error(check(call), Errc::unsupported,
                     {"merge: first.out spans 320 bytes; gpu:7 can address 316 bytes in one binding"});
  target.limits.max_binding_bytes = 320;
  EXPECT_OK(check(call));
}

// What a launch is told.

Merge plain_merge(DType dtype, Shape shape) {
  const Shape log{.tokens = shape.tokens, .heads = shape.heads, .dim = 1};
  const AttentionState part{View::token_major({}, dtype, shape), View::token_major({}, DType::f32, log)};
  return {.first = part, .second = part, .out = MutView::token_major({}, dtype, shape)};
}

struct Wanted {
  std::uint32_t first, second, out, out_words, in_place;
};

runtime::Constants constants_of(const Wanted& wanted) {
  return {{kMergeConstantFirst, wanted.first},
          {kMergeConstantSecond, wanted.second},
          {kMergeConstantOut, wanted.out},
          {kMergeConstantOutWords, wanted.out_words},
          {kMergeConstantInPlace, wanted.in_place}};
}

TEST(MergeLaunch, SaysTypesWholeWordsAndPlaces) {
  Merge call = plain_merge(DType::f16, {.tokens = 3, .heads = 2, .dim = 8});
  call.second.out.dtype = DType::bf16;
  EXPECT_EQ(choose_merge(call, {}).constants, constants_of({1, 2, 1, 1, kNoPart}));
  EXPECT_EQ(choose_merge(call, {.outs_in_place = kFirstPart}).constants, constants_of({1, 2, 1, 1, kFirstPart}));
  call.out.head_stride = 9;
  EXPECT_EQ(choose_merge(call, {}).constants, constants_of({1, 2, 1, 0, kNoPart}));
  call.out.dtype = DType::f32;
  EXPECT_EQ(choose_merge(call, {}).constants, constants_of({1, 2, 0, 1, kNoPart}));
  EXPECT_EQ(choose_merge(call, {}).params.merged_log, kNoLog);
  call.log_sum_exp = MutView::token_major({}, DType::bf16, call.first.log_sum_exp.shape);
  EXPECT_EQ(choose_merge(call, {}).params.merged_log, kBf16);
  EXPECT_EQ(choose_merge(call, {.logs_in_place = kSecondPart}).params.logs_in_place, kSecondPart);
}

TEST(MergeLaunch, CoversEveryRowWithinWhatADeviceCanLaunch) {
  const auto launch = [](Shape shape) { return choose_merge(plain_merge(DType::f16, shape), {}); };
  const MergeLaunch small = launch({.tokens = 5, .heads = 3, .dim = 31});
  EXPECT_EQ(small.params.row_lanes, 16U);  // 16 pairs of elements
  EXPECT_EQ(small.dispatch.groups, 4U);    // 15 rows, 4 to a group
  EXPECT_EQ(small.dispatch.items, 15U);
  EXPECT_EQ(small.dispatch.item_bytes, 186U);
  EXPECT_EQ(launch({.tokens = 1, .heads = 1, .dim = 1}).params.row_lanes, 1U);
  EXPECT_EQ(launch({.tokens = 65, .heads = 1, .dim = 2}).dispatch.groups, 2U);
  EXPECT_EQ(launch({.tokens = 1, .heads = 1, .dim = 4096}).params.row_lanes, kMergeGroupSize);
  EXPECT_EQ(launch({.tokens = 1 << 20, .heads = 16, .dim = 256}).dispatch.groups, runtime::kMaxGroups);
}

TEST(MergeCpu, ReachesBeyondFourGigabytes) {
  constexpr std::uint64_t kFar = (1ULL << 32) + 6;
  constexpr std::uint64_t kBytes = (kFar + 2) * 4;
  const std::array<test::Reserved, kMergeViews> memory{test::Reserved(kBytes), test::Reserved(kBytes),
                                                       test::Reserved(kBytes), test::Reserved(kBytes),
                                                       test::Reserved(kBytes), test::Reserved(kBytes)};
  const auto put = [&](std::uint32_t view, float value) {
    std::memcpy(memory[view].data() + kFar * 4, &value, sizeof(value));
  };
  const auto get = [&](std::uint32_t view) {
    float value = 0;
    std::memcpy(&value, memory[view].data() + kFar * 4, sizeof(value));
    return value;
  };
  put(kFirstOut, 3);
  put(kSecondOut, 5);
  put(kFirstLog, 100);
  put(kSecondLog, 100);
  Merge call = plain_merge(DType::f32, {.tokens = 2, .heads = 1, .dim = 1});
  call.log_sum_exp = call.out;
  MergeLaunch launch = choose_merge(call, {});
  for (Strides& strides : launch.views) strides.token = kFar;
  runtime::CpuCall cpu{.constants = {launch.constants.values.data(), launch.constants.count},
                       .params = &launch.params,
                       .bound = {},
                       .first_item = 0,
                       .last_item = 2};
  for (std::uint32_t view = 0; view < kMergeViews; ++view) cpu.bound[view] = memory[view].data();
  cpu.bound[kMergeStrides] = reinterpret_cast<std::byte*>(launch.views.data());
  merge_cpu(cpu);
  EXPECT_EQ(get(kMergedOut), 4);
  EXPECT_FLOAT_EQ(get(kMergedLog), 100.693147F);
}

}  // namespace
}  // namespace rota::ops
