#include "ops/rope/rope.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "codec/dense/dense.params.h"
#include "harness/on_device.h"
#include "ops/rope/rope_reference.h"
#include "runtime/device_state.h"

// The pure half of `rope`: every bad argument, and the launch that a good call leads to.

namespace rota::ops {
namespace {

using test::contiguous;
using test::plain_tensor;

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A sound call that tests spoil in one place: queries elsewhere, keys in place and normed.
struct Call {
  explicit Call(Device& device)
      : queries(device.allocate(5 * 4 * 8 * 4).value()),
        turned(device.allocate(5 * 4 * 8 * 2).value()),
        keys(device.allocate(5 * 2 * 8 * 2).value()),
        weight(device.allocate(2 * 8 * 4).value()) {
    tensors.push_back({.from = View::token_major(queries, DType::f32, {.tokens = 5, .heads = 4, .dim = 8}),
                       .to = MutView::token_major(turned, DType::f16, {.tokens = 5, .heads = 4, .dim = 8})});
    tensors.push_back(RopeTensor::in_place(
        MutView::token_major(keys, DType::bf16, {.tokens = 5, .heads = 2, .dim = 8}),
        HeadNorm{.epsilon = 1e-6,
                 .weight = View::token_major(weight, DType::f32, {.tokens = 1, .heads = 1, .dim = 8})}));
  }

  HeadNorm& norm() { return *tensors[1].norm; }
  void use_sections(std::vector<std::uint32_t> pairs, SectionOrder order = SectionOrder::contiguous) {
    positions.assign(5 * pairs.size(), 7);
    rotary.sections = {.pairs = std::move(pairs), .order = order, .frequencies = SectionFrequencies::shared};
  }

  Buffer queries, turned, keys, weight;
  std::vector<RopeTensor> tensors;
  std::vector<std::int64_t> positions{0, 1, 2, 3, 2147483647};
  Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
};

class RopeCheck : public ::testing::Test {
 protected:
  Result<RopePlan> check(const Call& call) const {
    return check_rope({.tensors = call.tensors, .positions = call.positions, .rotary = call.rotary}, target);
  }

  void expect_refused(const std::function<void(Call&)>& spoil, std::initializer_list<std::string_view> texts) {
    Call call(device);
    spoil(call);
    test::expect_error(check(call), Errc::invalid_argument, texts);
  }

  void expect_accepted(const std::function<void(Call&)>& change) {
    Call call(device);
    change(call);
    EXPECT_OK(check(call));
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  runtime::Target target{runtime::Inside::of(device).get(), "cpu", device.info().limits};
};

TEST_F(RopeCheck, AcceptsASoundCall) {
  const Call call(device);
  const auto plan = check(call);
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->tensors[0].in_place);
  EXPECT_TRUE(plan->tensors[1].in_place);
  EXPECT_TRUE(plan->tensors[1].weight.has_value());
  EXPECT_EQ(plan->positions, (std::vector<std::uint32_t>{0, 1, 2, 3, 2147483647}));
  EXPECT_EQ(plan->pairs.pairs, 4U);
}

TEST_F(RopeCheck, RefusesTensorsThatDoNotFitTogether) {
  expect_refused([](Call& c) { c.tensors.clear(); }, {"rope: tensors is empty; wanted at least one"});
  expect_refused([](Call& c) { c.tensors[0].to.shape.tokens = 4; },
                 {"tensors[0].to.shape.tokens is 4; wanted 5, as tensors[0].from.shape.tokens is"});
  expect_refused([](Call& c) { c.tensors[0].to.shape.heads = 3; }, {"tensors[0].to.shape.heads is 3; wanted 4"});
  expect_refused([](Call& c) { c.tensors[0].to.shape.dim = 6; }, {"tensors[0].to.shape.dim is 6; wanted 8"});
  expect_refused([](Call& c) { c.tensors[1].from = c.tensors[1].from.slice(0, 4); },
                 {"tensors[1].from.shape.tokens is 4; wanted 5, as tensors[0].from.shape.tokens is"});
  expect_refused([](Call& c) { c.tensors[1].from.shape.dim = c.tensors[1].to.shape.dim = 6; },
                 {"tensors[1].from.shape.dim is 6; wanted 8, as tensors[0].from.shape.dim is"});
  expect_refused([](Call& c) { c.tensors[0].from.shape.tokens = c.tensors[0].to.shape.tokens = kMax; },
                 {"tensors[0].from.shape.tokens is 18446744073709551615; wanted at most 4294967295"});
  expect_refused([](Call& c) { c.tensors[0].from.shape.heads = c.tensors[0].to.shape.heads = kMax; },
                 {"tensors[0].from.shape.heads", "at most 4294967295"});
  expect_refused([](Call& c) { c.tensors[0].from.shape.dim = c.tensors[0].to.shape.dim = 4098; },
                 {"tensors[0].from.shape.dim is 4098; wanted at most 4096"});
}

TEST_F(RopeCheck, RefusesBadViews) {
  expect_refused([](Call& c) { c.tensors[0].from.offset = 1; }, {"tensors[0].from is a view that ends at byte 644"});
  expect_refused([](Call& c) { c.tensors[0].to.offset = 1; }, {"tensors[0].to is a view that ends at byte 322"});
  expect_refused([](Call& c) { c.tensors[0].from.token_stride = kMax; }, {"tensors[0].from", "2^64"});
  expect_refused([](Call& c) { c.tensors[0].from.buffer = {}; }, {"tensors[0].from is a view of no buffer"});
  expect_refused([](Call& c) { c.tensors[0].to.buffer = {}; }, {"tensors[0].to is a view of no buffer"});
  expect_refused([](Call& c) { c.tensors[0].from.dtype = static_cast<DType>(7); }, {"tensors[0].from is of dtype 7"});
  expect_refused([](Call& c) { c.tensors[0].to.dtype = static_cast<DType>(3); }, {"tensors[0].to is of dtype 3"});
  expect_refused([](Call& c) { c.tensors[0].to.head_stride = 7; }, {"tensors[0].to", "of its own"});
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Call foreign(other);
  expect_refused([&](Call& c) { c.tensors[0].from.buffer = foreign.queries; },
                 {"tensors[0].from is in a buffer of another device"});
  expect_refused([&](Call& c) { c.tensors[0].to.buffer = foreign.turned; },
                 {"tensors[0].to is in a buffer of another device"});
  expect_accepted([](Call& c) { c.tensors[0].from.token_stride = 0; });  // one token for all: only read
}

TEST_F(RopeCheck, RefusesSourcesThatOverlapTheirTargetInPart) {
  const Buffer both = device.allocate(1024).value();
  const auto overlap = [&](Call& c, std::uint64_t target_offset) {
    c.tensors[0].from = View::token_major(both, DType::f16, {.tokens = 5, .heads = 4, .dim = 8});
    c.tensors[0].to = MutView::token_major(both, DType::f16, {.tokens = 5, .heads = 4, .dim = 8});
    c.tensors[0].to.offset = target_offset;
  };
  expect_accepted([&](Call& c) { overlap(c, 0); });
  expect_accepted([&](Call& c) { overlap(c, 160); });
  expect_refused([&](Call& c) { overlap(c, 1); },
                 {"tensors[0].from is in bytes 0 to 320 of one buffer with tensors[0].to; wanted bytes outside"});
  expect_refused([&](Call& c) { overlap(c, 158); }, {"tensors[0].from"});
  expect_refused(
      [&](Call& c) {
        overlap(c, 0);
        c.tensors[0].to.dtype = DType::bf16;
      },
      {"tensors[0].from"});
  expect_refused(
      [&](Call& c) {
        overlap(c, 0);
        c.tensors[0].to.token_stride = 33;
      },
      {"tensors[0].from"});
  expect_refused(
      [&](Call& c) {
        overlap(c, 0);
        c.tensors[0].from.head_stride = 4;
      },
      {"tensors[0].from"});
  expect_refused(
      [&](Call& c) {
        overlap(c, 0);
        c.tensors[0].from.dim_stride = 0;
      },
      {"tensors[0].from"});
  expect_accepted([&](Call& c) {  // a stride that is never taken may differ
    overlap(c, 0);
    c.tensors.resize(1);
    c.tensors[0].from = c.tensors[0].from.slice(0, 1);
    c.tensors[0].to = c.tensors[0].to.slice(0, 1);
    c.tensors[0].to.token_stride = 8;
    c.positions.resize(1);
  });
}

TEST_F(RopeCheck, RefusesBadNorms) {
  for (const double epsilon : {0.0, -1e-6, kNaN, kInfinity, 1e39, 1e-39, 0x1p-105}) {
    expect_refused([&](Call& c) { c.norm().epsilon = epsilon; }, {"tensors[1].norm.epsilon is", "at least 2^-104"});
  }
  for (const double offset : {kNaN, kInfinity, 1e39}) {
    expect_refused([&](Call& c) { c.norm().weight_offset = offset; }, {"tensors[1].norm.weight_offset is"});
  }
  expect_refused([](Call& c) { c.norm().weight->shape.tokens = 2; },
                 {"tensors[1].norm.weight.shape.tokens is 2; wanted 1"});
  expect_refused([](Call& c) { c.norm().weight->shape.heads = 3; },
                 {"tensors[1].norm.weight.shape.heads is 3; wanted 1 or 2"});
  expect_refused([](Call& c) { c.norm().weight->shape.dim = 7; }, {"tensors[1].norm.weight.shape.dim is 7; wanted 8"});
  expect_refused([](Call& c) { c.norm().weight->offset = 16; },
                 {"tensors[1].norm.weight is a view that ends at byte 96"});
  expect_refused([](Call& c) { c.norm().weight->buffer = {}; }, {"tensors[1].norm.weight is a view of no buffer"});
  expect_refused(
      [](Call& c) { c.norm().weight = View::token_major(c.keys, DType::bf16, {.tokens = 1, .heads = 1, .dim = 8}); },
      {"tensors[1].norm.weight is in bytes 0 to 16 of one buffer with tensors[1].to; wanted bytes outside of its 0 to "
       "160"});
  expect_refused([](Call& c) { c.norm().weight->dtype = static_cast<DType>(5); },
                 {"tensors[1].norm.weight is of dtype 5"});
  expect_refused([](Call& c) { c.norm().weight->dim_stride = kMax; }, {"tensors[1].norm.weight", "2^64"});
  expect_refused(
      [](Call& c) {
        c.norm().weight.reset();
        c.norm().weight_offset = 1;
      },
      {"tensors[1].norm.weight is missing; wanted the weight that weight_offset is added to"});
  Device other = Device::open({.device = "cpu", .threads = 1}).value();
  const Call foreign(other);
  expect_refused([&](Call& c) { c.norm().weight->buffer = foreign.weight; },
                 {"tensors[1].norm.weight is in a buffer of another device"});
  expect_accepted([](Call& c) { c.norm().weight->shape.heads = 2; });
  expect_accepted([](Call& c) { c.norm().weight.reset(); });
}

TEST_F(RopeCheck, RefusesBadPositions) {
  expect_refused([](Call& c) { c.positions.pop_back(); }, {"rope: positions is 4 long; wanted 5: 5 tokens on 1 axis"});
  expect_refused([](Call& c) { c.positions.clear(); }, {"positions is 0 long"});
  expect_refused([](Call& c) { c.positions.push_back(1); }, {"positions is 6 long; wanted 5"});
  expect_refused([](Call& c) { c.positions[3] = -1; }, {"positions[3] is -1; wanted a number from 0 to 2147483647"});
  expect_refused([](Call& c) { c.positions[0] = 2147483648; }, {"positions[0] is 2147483648; wanted"});
  expect_refused([](Call& c) { c.positions[4] = std::numeric_limits<std::int64_t>::min(); }, {"positions[4] is -9223"});
  expect_refused(
      [](Call& c) {
        c.use_sections({1, 1, 2});
        c.positions.resize(5);
      },
      {"positions is 5 long; wanted 15: 5 tokens on 3 axes"});
  // Other types of positions do not compile.
  static_assert(!std::is_constructible_v<std::span<const std::int64_t>, const std::vector<std::int32_t>&>);
  static_assert(!std::is_constructible_v<std::span<const std::int64_t>, const std::vector<double>&>);
}

TEST_F(RopeCheck, RefusesBadRotaries) {
  for (const double theta : {0.0, -1e4, kNaN, kInfinity}) {
    expect_refused([&](Call& c) { c.rotary.theta = theta; }, {"rope: rotary.theta is", "a finite number above 0"});
  }
  expect_refused([](Call& c) { c.rotary.theta = 0.05; },
                 {"rope: rotary is a frequency of", "for pair 1; wanted at most 2"});
  expect_accepted([](Call& c) { c.rotary.interpolation = 0.5; });
  expect_refused([](Call& c) { c.rotary.interpolation = 0.49; }, {"rope: rotary is a frequency of 2.04", "for pair 0"});
  expect_refused(
      [](Call& c) {
        for (RopeTensor& tensor : c.tensors) tensor.from.shape.dim = tensor.to.shape.dim = 7;
        c.norm().weight->shape.dim = 7;
      },
      {"rotary.rope_dim is 7; wanted an even number"});
  for (const std::uint64_t rope_dim : {0U, 1U, 7U}) {
    expect_refused([&](Call& c) { c.rotary.rope_dim = rope_dim; },
                   {"rotary.rope_dim is", "wanted an even number, at least 2"});
  }
  expect_refused([](Call& c) { c.rotary.rope_dim = 10; },
                 {"tensors[0].from.shape.dim is 8; wanted at least rotary.rope_dim, 10"});
  expect_refused([](Call& c) { c.rotary.turning_pairs = 5; }, {"rotary.turning_pairs is 5; wanted at most 4"});
  expect_refused([](Call& c) { c.rotary.exponent_dim = 0; }, {"rotary.exponent_dim is 0; wanted at least 1"});
  expect_refused([](Call& c) { c.rotary.pairing = static_cast<Pairing>(3); }, {"rotary.pairing is 3"});
  for (const double scale : {0.0, -1.0, kNaN, kInfinity}) {
    expect_refused([&](Call& c) { c.rotary.interpolation = scale; }, {"rotary.interpolation is"});
    expect_refused([&](Call& c) { c.rotary.magnitude = scale; }, {"rotary.magnitude is"});
  }
  for (const double magnitude : {1e39, 1e-39, 1e-60}) {
    expect_refused([&](Call& c) { c.rotary.magnitude = magnitude; }, {"rotary.magnitude is", "a normal number of f32"});
  }
}

TEST_F(RopeCheck, RefusesBadFactors) {
  expect_refused([](Call& c) { c.rotary.factors = {1, 1, 1}; },
                 {"rotary.factors is 3 long; wanted one for each of 4 pairs"});
  expect_refused([](Call& c) { c.rotary.factors = {1, 1, 0, 1}; },
                 {"rotary.factors[2] is 0; wanted a finite number above 0"});
  expect_refused([](Call& c) { c.rotary.factors = {1, -2, 1, 1}; }, {"rotary.factors[1] is -2"});
  expect_refused([](Call& c) { c.rotary.factors = {std::numeric_limits<float>::quiet_NaN(), 1, 1, 1}; },
                 {"rotary.factors[0] is nan"});
  expect_refused([](Call& c) { c.rotary.factors = {1, 1, 1, std::numeric_limits<float>::infinity()}; },
                 {"rotary.factors[3] is inf"});
  expect_refused([](Call& c) { c.rotary.factors = {1e-30F, 1, 1, 1}; }, {"rope: rotary is a frequency of"});
}

TEST_F(RopeCheck, RefusesBadYarn) {
  const auto with = [](const std::function<void(Yarn&)>& change) {
    return [change](Call& c) {
      c.rotary.yarn = Yarn{.factor = 4, .original_context = 4096};
      change(*c.rotary.yarn);
    };
  };
  expect_accepted(with([](Yarn&) {}));
  expect_refused(with([](Yarn& y) { y.original_context = 0; }), {"rotary.yarn.original_context is 0"});
  for (const double factor : {0.0, -4.0, kNaN, kInfinity}) {
    expect_refused(with([&](Yarn& y) { y.factor = factor; }), {"rotary.yarn.factor is"});
  }
  expect_refused(
      [&](Call& c) {
        with([](Yarn&) {})(c);
        c.rotary.interpolation = 4;
      },
      {"rotary.interpolation is 4; wanted 1 beside YaRN"});
  for (const double beta : {0.0, -1.0, kNaN, kInfinity}) {
    expect_refused(with([&](Yarn& y) { y.beta_fast = beta; }), {"rotary.yarn.beta_fast is"});
    expect_refused(with([&](Yarn& y) { y.beta_slow = beta; }), {"rotary.yarn.beta_slow is"});
  }
  expect_refused(with([](Yarn& y) { y.beta_fast = 0.5; }),
                 {"rotary.yarn.beta_fast is 0.5; wanted at least beta_slow, 1"});
  for (const double part : {-0.1, 1.1, kNaN}) {
    expect_refused(with([&](Yarn& y) { y.extrapolation = part; }), {"rotary.yarn.extrapolation is"});
  }
  expect_refused(with([](Yarn& y) { y.ramp = static_cast<YarnRamp>(2); }), {"rotary.yarn.ramp is 2"});
  expect_refused(
      [&](Call& c) {
        with([](Yarn&) {})(c);
        c.rotary.theta = 1.0;
      },
      {"rotary.theta is 1; wanted more than 1"});
}

TEST_F(RopeCheck, RefusesBadSections) {
  expect_refused([](Call& c) { c.use_sections({1, 1, 1}); },
                 {"rotary.sections.pairs is 3 in all; wanted 4, half of rope_dim"});
  expect_refused([](Call& c) { c.use_sections({4294967295U, 5}); }, {"rotary.sections.pairs is 4294967300 in all"});
  expect_refused([](Call& c) { c.use_sections({1, 1, 1, 1, 0}); }, {"rotary.sections.pairs is 5 long; wanted 1 to 4"});
  expect_refused([](Call& c) { c.use_sections({}); }, {"rotary.sections.pairs is 0 long; wanted 1 to 4"});
  expect_refused([](Call& c) { c.use_sections({2, 2}, static_cast<SectionOrder>(2)); }, {"rotary.sections.order is 2"});
  expect_refused(
      [](Call& c) {
        c.use_sections({2, 2});
        c.rotary.sections->frequencies = static_cast<SectionFrequencies>(2);
      },
      {"rotary.sections.frequencies is 2"});
  expect_refused([](Call& c) { c.rotary.pairing = Pairing::section_halves; },
                 {"rotary.sections is missing; wanted sections, since the pairing is section_halves"});

  const auto taking_turns = [](std::vector<std::uint32_t> pairs) {
    return [pairs](Call& c) { c.use_sections(pairs, SectionOrder::interleaved); };
  };
  expect_accepted(taking_turns({2, 1, 1}));
  expect_accepted(taking_turns({1, 1, 1, 1}));
  expect_refused(taking_turns({2, 2}), {"rotary.sections.pairs is 2 long; wanted 3 to 4 where they take turns"});
  expect_refused(taking_turns({1, 2, 1}),
                 {"rotary.sections.pairs[0] is 1; wanted 2, which is what taking turns gives"});
  expect_refused(
      [&](Call& c) {
        taking_turns({2, 1, 1})(c);
        c.rotary.pairing = Pairing::section_halves;
      },
      {"rotary.sections.order is interleaved; wanted contiguous"});
}

TEST_F(RopeCheck, RefusesMorePositionsThanOneBindingHolds) {
  const Call call(device);
  target.limits.max_binding_bytes = 700;
  EXPECT_OK(check(call));
  Call many(device);
  many.tensors.resize(1);
  many.tensors[0].from.shape = many.tensors[0].to.shape = {.tokens = 200, .heads = 0, .dim = 8};
  many.positions.assign(200, 1);
  test::expect_error(check(many), Errc::unsupported, {"rope: positions take 800 bytes", "can address 700 bytes"});
}

// What a launch is told.

RopeLaunch launch_for(const RopeTensor& tensor, const Rotary& rotary) {
  const PairTable pairs = pair_table(rotary, rotary.rope_dim.value_or(tensor.from.shape.dim)).value();
  return choose_rope(tensor, {.from = {}, .to = {}, .weight = {}}, pairs);
}

TEST(RopeLaunch, TurnsTwoPairsAtATimeWhereTheirWordsAreWhole) {
  const Shape shape{.tokens = 3, .heads = 2, .dim = 8};
  const auto unit = [&](const Rotary& rotary) {
    return launch_for(plain_tensor(DType::f16, shape), rotary).constants.values[kRopeConstantUnit];
  };
  EXPECT_EQ(unit({.pairing = Pairing::halves, .theta = 1e4}), kTwoPairs);
  EXPECT_EQ(unit({.pairing = Pairing::halves, .theta = 1e4, .rope_dim = 6}), kOnePair) << "3 with 0: half a word apart";
  EXPECT_EQ(unit({.pairing = Pairing::interleaved, .theta = 1e4, .rope_dim = 6}), kNeighbourPair);
  EXPECT_EQ(unit({.pairing = Pairing::section_halves, .theta = 1e4, .sections = contiguous({1, 3})}), kOnePair);
  EXPECT_EQ(unit({.pairing = Pairing::section_halves, .theta = 1e4, .sections = contiguous({2, 2})}), kTwoPairs);
  EXPECT_EQ(unit({.pairing = Pairing::halves, .theta = 1e4, .sections = contiguous({1, 3})}), kTwoPairs);
}

TEST(RopeLaunch, SaysWhichWordsAreWhole) {
  RopeTensor tensor = plain_tensor(DType::f16, {.tokens = 3, .heads = 2, .dim = 8});
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantFromWords], 1U);
  tensor.from.head_stride = 9;
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantFromWords], 0U);
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantToWords], 1U);
  tensor.to.dim_stride = 2;
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantToWords], 0U);
}

TEST(RopeLaunch, CoversEveryRowWithinWhatADeviceCanLaunch) {
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const auto launch = [&](Shape shape) { return launch_for(plain_tensor(DType::f16, shape), rotary); };
  const RopeLaunch small = launch({.tokens = 5, .heads = 3, .dim = 64});
  EXPECT_EQ(small.constants.values[kRopeConstantRowLanes], 16U);  // 32 pairs, two at a time
  EXPECT_EQ(small.dispatch.groups, 4U);                           // 15 rows, 4 to a group
  EXPECT_EQ(small.dispatch.items, 15U);
  EXPECT_EQ(small.dispatch.item_bytes, 256U);
  EXPECT_EQ(launch({.tokens = 1, .heads = 1, .dim = 2}).constants.values[kRopeConstantRowLanes], 8U);
  EXPECT_EQ(launch({.tokens = 1, .heads = 1, .dim = 1024}).constants.values[kRopeConstantRowLanes], 64U);
  EXPECT_EQ(launch({.tokens = 1 << 20, .heads = 16, .dim = 256}).dispatch.groups, runtime::kMaxGroups);
}

TEST(RopeLaunch, TellsTheNormAndItsWeight) {
  RopeTensor tensor = plain_tensor(DType::f16, {.tokens = 3, .heads = 2, .dim = 8});
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantNorm], kNotNormed);
  tensor.norm = HeadNorm{.epsilon = 0.5, .weight_offset = 1};
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantNorm], kNormed);
  EXPECT_EQ(launch_for(tensor, rotary).params.epsilon, 0.5F);
  tensor.norm->weight = View::token_major({}, DType::bf16, {.tokens = 1, .heads = 1, .dim = 8});
  EXPECT_EQ(launch_for(tensor, rotary).constants.values[kRopeConstantNorm], kNormed + 1 + kBf16);
  EXPECT_EQ(launch_for(tensor, rotary).params.weight_offset, 1.0F);
}

TEST(Rope, CannotLeaveOutWhatHasNoDefault) {
  static_assert(!std::is_default_constructible_v<RopeSections>);
  static_assert(std::is_constructible_v<Required<double>, int> && !std::is_constructible_v<Required<int>, double>);
  static_assert(!std::is_default_constructible_v<Rotary>);
  static_assert(!std::is_default_constructible_v<HeadNorm>);
  static_assert(!std::is_default_constructible_v<Yarn>);
}

}  // namespace
}  // namespace rota::ops
