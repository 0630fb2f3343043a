#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/rope/rope_calls_reference.h"

// What every pair becomes, beside the definition.

namespace rota::test {
namespace {

TEST_F(RopeOnDevice, KeepsItsPrecisionAtAMillionPositionsAndBeyond) {
  for (const double theta : {1e4, 1e6}) {
    for (const DTypeInfo& dtype : kDTypes) {
      double worst = 0;
      for (const std::uint64_t dim : {64U, 128U, 256U}) {
        TensorUnderTest tensor(
            device, random, {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 12, .heads = 2, .dim = dim}});
        const std::vector<std::int64_t> positions{kFar,         kFar - 1,  kFar + 1,  1000003, 777777, 131072,
                                                  kLast / 1000, kLast / 3, kLast - 1, kLast,   1,      0};
        worst = std::max(worst, expect_rotated(tensor, {.pairing = Pairing::halves, .theta = theta}, positions));
      }
      // Half a last place is a quarter of the bound: a second rounding on the way would show.
      EXPECT_LE(worst, 0.4);
      RecordProperty(std::string(dtype.name) + "_part_of_bound_theta_" + std::to_string(static_cast<int>(theta)),
                     std::to_string(worst));
    }
  }
}

TEST_F(RopeOnDevice, RotatesBetweenAllDTypesWithEveryPairing) {
  for (const Pairing pairing : {Pairing::halves, Pairing::interleaved, Pairing::section_halves}) {
    Rotary rotary{.pairing = pairing, .theta = 1e4, .rope_dim = 40};
    std::uint64_t axes = 1;
    if (pairing == Pairing::section_halves) {
      rotary.sections = {.pairs = {8, 12}, .order = SectionOrder::contiguous, .frequencies = SectionFrequencies::own};
      axes = 2;
    }
    for (const DTypeInfo& from : kDTypes) {
      for (const DTypeInfo& to : kDTypes) {
        TensorUnderTest tensor(device, random,
                               {.from = from.dtype, .to = to.dtype, .shape = {.tokens = 5, .heads = 3, .dim = 72}});
        expect_rotated(tensor, rotary, some_positions(5 * axes));
      }
    }
  }
}

TEST_F(RopeOnDevice, ServesEveryHeadSize) {
  for (std::uint64_t dim = 2; dim <= 80; dim += 2) {
    for (const Pairing pairing : {Pairing::halves, Pairing::interleaved}) {
      TensorUnderTest tensor(device, random,
                             {.from = DType::f16, .to = DType::f16, .shape = {.tokens = 3, .heads = 2, .dim = dim}});
      expect_rotated(tensor, {.pairing = pairing, .theta = 1e4}, some_positions(3));
    }
  }
  for (const std::uint64_t dim : {96U, 112U, 160U, 192U, 320U, 512U, 576U, 1024U, 4096U}) {
    TensorUnderTest tensor(device, random,
                           {.from = DType::bf16, .to = DType::bf16, .shape = {.tokens = 2, .heads = 2, .dim = dim}});
    expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e6}, some_positions(2));
  }
}

// Axes in any order, with gaps; each stride lies beyond all that the smaller ones reach.
struct DrawnStrides {
  std::uint64_t token, head, dim;
};

DrawnStrides draw_strides(const Shape& shape, std::mt19937_64& drawn) {
  std::array<std::size_t, 3> order{0, 1, 2};  // dim, head, token
  if (*rc::gen::inRange(0, 3) == 0) std::ranges::shuffle(order, drawn);
  const std::array<std::uint64_t, 3> counts{shape.dim, shape.heads, shape.tokens};
  std::array<std::uint64_t, 3> strides{};
  std::uint64_t next = 1;
  for (const std::size_t axis : order) {
    strides[axis] = next;
    next = next * counts[axis] + *rc::gen::element<std::uint64_t>(0, 0, 1, 2, 5);
  }
  return {strides[2], strides[1], strides[0]};
}

std::vector<std::uint32_t> draw_sections(std::uint32_t pairs, SectionOrder order) {
  if (order == SectionOrder::interleaved) return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
  if (*rc::gen::inRange(0, 2) == 0) return {pairs / 2, 0, pairs - pairs / 2, 0};
  const std::uint32_t first = *rc::gen::inRange<std::uint32_t>(0, pairs + 1);
  const std::uint32_t second = *rc::gen::inRange<std::uint32_t>(0, pairs - first + 1);
  return {first, second, pairs - first - second};
}

Rotary draw_rotary(std::uint64_t rope_dim) {
  Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const auto pairs = static_cast<std::uint32_t>(rope_dim / 2);
  rotary.pairing = *rc::gen::element(Pairing::halves, Pairing::interleaved, Pairing::section_halves);
  rotary.theta = *rc::gen::element(1e4, 1e6, 100.0, 5e5);
  rotary.rope_dim = rope_dim;
  if (*rc::gen::inRange(0, 4) == 0) rotary.exponent_dim = rope_dim * 2;
  if (*rc::gen::inRange(0, 4) == 0) rotary.turning_pairs = *rc::gen::inRange<std::uint64_t>(0, pairs + 1);
  if (*rc::gen::inRange(0, 3) == 0) {
    for (std::uint32_t p = 0; p < pairs; ++p) rotary.factors.push_back(0.75F + 0.25F * static_cast<float>(p));
  }
  if (*rc::gen::inRange(0, 3) == 0) {
    rotary.yarn = Yarn{.factor = *rc::gen::element(1.0, 4.0, 32.0),
                       .original_context = 4096,
                       .beta_fast = *rc::gen::element(32.0, 8.0),
                       .extrapolation = *rc::gen::element(1.0, 0.5),
                       .ramp = *rc::gen::element(YarnRamp::whole_pairs, YarnRamp::exact)};
  } else {
    rotary.interpolation = *rc::gen::element(1.0, 1.0, 4.0, 2.5);
  }
  if (*rc::gen::inRange(0, 4) == 0) rotary.magnitude = 1.25;
  const bool needs_sections = rotary.pairing == Pairing::section_halves;
  if (needs_sections || *rc::gen::inRange(0, 2) == 0) {
    const SectionOrder order = needs_sections ? SectionOrder::contiguous
                                              : *rc::gen::element(SectionOrder::contiguous, SectionOrder::interleaved);
    rotary.sections = {.pairs = draw_sections(pairs, order),
                       .order = order,
                       .frequencies = *rc::gen::element(SectionFrequencies::shared, SectionFrequencies::own)};
  }
  return rotary;
}

TEST_F(RopeOnDevice, AgreesWithTheDefinitionForAnyRotaryLayoutAndNorm) {
  EXPECT_TRUE(rc::check("rope", [this] {
    std::mt19937_64 drawn(*rc::gen::arbitrary<std::uint64_t>());  // so that a failure can be replayed
    const auto dtype = rc::gen::element(DType::f32, DType::f16, DType::bf16);
    const std::uint64_t rope_dim = 2 * *rc::gen::inRange<std::uint64_t>(1, 25);
    const Shape shape{.tokens = *rc::gen::inRange<std::uint64_t>(1, 8),
                      .heads = *rc::gen::inRange<std::uint64_t>(1, 5),
                      .dim = rope_dim + *rc::gen::element<std::uint64_t>(0, 0, 1, 2, 7)};
    const DrawnStrides from = draw_strides(shape, drawn);
    const DrawnStrides to = draw_strides(shape, drawn);
    TensorSpec spec{.from = *dtype,
                    .to = *dtype,
                    .shape = shape,
                    .from_token_stride = from.token,
                    .from_head_stride = from.head,
                    .from_dim_stride = from.dim,
                    .to_token_stride = to.token,
                    .to_head_stride = to.head,
                    .to_dim_stride = to.dim,
                    .in_place = *rc::gen::inRange(0, 3) == 0};
    if (spec.in_place) {
      spec.to = spec.from;
      spec.to_token_stride = from.token;
      spec.to_head_stride = from.head;
      spec.to_dim_stride = from.dim;
    }
    TensorUnderTest tensor(device, drawn, spec);
    if (*rc::gen::inRange(0, 3) == 0) {
      const auto weight = *rc::gen::element(std::optional<DType>(), std::optional(DType::f32),
                                            std::optional(DType::f16), std::optional(DType::bf16));
      const double offset = weight ? *rc::gen::element(0.0, 1.0) : 0;
      tensor.set_norm(device, drawn, {.epsilon = 1e-6, .weight_offset = offset}, weight);
    }
    const Rotary rotary = draw_rotary(rope_dim);
    const auto positions = some_positions(shape.tokens * (rotary.sections ? rotary.sections->pairs.size() : 1));
    const Status status = run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary});
    if (!status) RC_FAIL(status.error().message);
    RC_ASSERT(tensor.worst_error(rotary, positions) <= 1);
  }));
}

TEST_F(RopeOnDevice, KeepsLengthsAndIsUndoneByTheOppositeRotation) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 6, .heads = 2, .dim = 64}});
  const std::vector<std::int64_t> positions{0, 1, 500, 70000, kFar, kLast};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  for (std::uint64_t token = 0; token < positions.size(); ++token) {
    const std::vector<double> before = tensor.head_before(token, 1);
    const std::vector<double> after = tensor.head_after(token, 1);
    const std::vector<std::int64_t> back{-positions[token]};
    const RotatedHead undone = rotate_by_definition(rotary, back, after);
    for (std::uint64_t d = 0; d < 64; ++d) {
      const double length = std::hypot(before[d], before[(d + 32) % 64]);
      EXPECT_NEAR(std::hypot(after[d], after[(d + 32) % 64]), length, 1e-6 * length + kFlushed);
      EXPECT_NEAR(undone.values[d], before[d], 1.5e-6 * length + kFlushed);
    }
  }
}

TEST_F(RopeOnDevice, MakesDotProductsDependOnTheDistanceOnly) {
  constexpr std::uint64_t kDim = 128;
  const std::vector<std::int64_t> starts{0, 1, 1000, 65536, kFar, kLast - 37};
  const std::uint64_t tokens = starts.size();
  // The same query and the same key at every start, the key 37 positions later.
  TensorUnderTest queries(device, random, {.shape = {.tokens = tokens, .heads = 1, .dim = kDim}});
  TensorUnderTest keys(device, random, {.shape = {.tokens = tokens, .heads = 1, .dim = kDim}});
  for (TensorUnderTest* tensor : {&queries, &keys}) {
    for (std::uint64_t i = kDim; i < tokens * kDim; ++i) {
      save_bits(tensor->source, DType::f32, i, load_bits(tensor->source, DType::f32, i % kDim));
    }
    tensor->write_source();
  }
  std::vector<std::int64_t> later = starts;
  for (std::int64_t& position : later) position += 37;
  const Rotary rotary{.pairing = Pairing::interleaved, .theta = 1e6};
  ASSERT_OK(run_rope(device, {.tensors = {&queries.tensor, 1}, .positions = starts, .rotary = rotary}));
  ASSERT_OK(run_rope(device, {.tensors = {&keys.tensor, 1}, .positions = later, .rotary = rotary}));
  const auto product = [&](std::uint64_t token) {
    const auto q = queries.head_after(token, 0);
    const auto k = keys.head_after(token, 0);
    return std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  };
  const auto q = queries.head_before(0, 0);
  const auto k = keys.head_before(0, 0);
  double scale = 0;
  for (std::uint64_t d = 0; d < kDim; d += 2) scale += std::hypot(q[d], q[d + 1]) * std::hypot(k[d], k[d + 1]);
  for (std::uint64_t token = 1; token < tokens; ++token) {
    EXPECT_NEAR(product(token), product(0), 4e-6 * scale) << "at " << starts[token];
  }
}

// Results that must be the same bits, from the same source.
TEST_F(RopeOnDevice, WithEqualAxesEqualsOneAxis) {
  constexpr std::uint64_t kTokens = 5;
  TensorUnderTest tensor(device, random,
                         {.from = DType::f16, .to = DType::f16, .shape = {.tokens = kTokens, .heads = 2, .dim = 128}});
  const auto plain_positions = some_positions(kTokens);
  std::vector<std::int64_t> positions;
  for (int axis = 0; axis < 4; ++axis)
    positions.insert(positions.end(), plain_positions.begin(), plain_positions.end());
  const Rotary plain{.pairing = Pairing::halves, .theta = 1e6};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = plain_positions, .rotary = plain}));
  const auto wanted = tensor.result();
  for (const SectionOrder order : {SectionOrder::contiguous, SectionOrder::interleaved}) {
    Rotary by_axes = plain;
    by_axes.sections = {.pairs = {20, 20, 20, 4}, .order = order, .frequencies = SectionFrequencies::shared};
    tensor.clear_target();
    ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = by_axes}));
    EXPECT_EQ(tensor.result(), wanted);
  }
}

TEST_F(RopeOnDevice, TurnsTheFastestPairThatItTakesAtTheLastPosition) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 3, .heads = 1, .dim = 8}});
  expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4, .factors = {0.51F, 0.051F, 0.9F, 1}},
                 {kLast, kLast - 1, kFar});
}

TEST_F(RopeOnDevice, RoundsWhatF16CannotHoldToInfinity) {
  TensorUnderTest tensor(device, random,
                         {.from = DType::f32, .to = DType::f16, .shape = {.tokens = 1, .heads = 1, .dim = 2}});
  for (const std::uint64_t d : {0U, 1U}) save_bits(tensor.source, DType::f32, d, bits_of(60000, DType::f32));
  tensor.write_source();
  const std::vector<std::int64_t> positions{1};  // a radian: -18,000 and 83,000
  ASSERT_OK(run_rope(
      device,
      {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = {.pairing = Pairing::halves, .theta = 1e4}}));
  EXPECT_LT(tensor.head_after(0, 0)[0], -18000);
  EXPECT_EQ(tensor.head_after(0, 0)[1], std::numeric_limits<double>::infinity());
}

TEST_F(RopeOnDevice, SpoilsOnlyThePairsThatHoldAnInfinityOrANaN) {
  for (const DTypeInfo& dtype : kDTypes) {
    TensorUnderTest tensor(device, random,
                           {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 4, .heads = 2, .dim = 48}});
    for (const auto& [index, value] : {std::pair{3U, std::numeric_limits<double>::infinity()},
                                       std::pair{60U, -std::numeric_limits<double>::infinity()},
                                       std::pair{200U, std::numeric_limits<double>::quiet_NaN()}}) {
      save_bits(tensor.source, dtype.dtype, index, bits_of(value, dtype.dtype));
    }
    tensor.write_source();
    expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4}, {0, 5, 100, 7});
  }
}

TEST_F(RopeOnDevice, CopiesTheRestBitForBit) {
  // Signalling NaN and all: what does not turn is moved, not computed.
  for (std::size_t i = 0; i < kDTypes.size() * kDTypes.size(); ++i) {
    const DTypeInfo& dtype = kDTypes[i / kDTypes.size()];
    const DType to = kDTypes[i % kDTypes.size()].dtype;
    TensorUnderTest tensor(device, random,
                           {.from = dtype.dtype, .to = to, .shape = {.tokens = 2, .heads = 2, .dim = 33}});
    const auto any = random_elements(random, dtype.dtype, std::uint64_t{2} * 2 * 33);
    tensor.source = any;
    tensor.write_source();
    const std::vector<std::int64_t> positions{1, 2};
    ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1},
                                .positions = positions,
                                .rotary = {.pairing = Pairing::halves, .theta = 1e4, .rope_dim = 6}}));
    const auto found = tensor.result();
    for (std::uint64_t k = 0; k < std::uint64_t{2} * 2 * 33; ++k) {
      if (k % 33 >= 6) {
        ASSERT_EQ(load_bits(found, to, k), convert_bits(load_bits(any, dtype.dtype, k), dtype.dtype, to)) << dtype.name;
      }
    }
  }
}

}  // namespace
}  // namespace rota::test
