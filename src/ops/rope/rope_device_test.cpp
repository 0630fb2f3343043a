#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <numeric>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "harness/on_device.h"
#include "ops/rope/rope_reference.h"

namespace rota::test {
namespace {

constexpr std::int64_t kFar = 1'048'576;
constexpr std::int64_t kLast = 2'147'483'647;

class RopeOnDevice : public OnDevice {
 protected:
  // Rotates, and holds the result against the definition. Returns the worst error as a part of its bound.
  double expect_rotated(TensorUnderTest& tensor, const Rotary& rotary, const std::vector<std::int64_t>& positions) {
    const Status status = run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary});
    EXPECT_OK(status);
    const double worst = tensor.worst_error(rotary, positions);
    EXPECT_LE(worst, 1);
    return worst;
  }

  std::vector<std::int64_t> some_positions(std::uint64_t count) {
    std::vector<std::int64_t> positions(count);
    const std::vector<std::int64_t> telling{0, 1, 4095, 131071, kFar - 1, kFar, kLast - 1, kLast};
    for (std::int64_t& position : positions) {
      position = random() % 2 == 0 ? telling[random() % telling.size()] : static_cast<std::int64_t>(random() % 100000);
    }
    return positions;
  }

  std::mt19937_64 random{20261115};
};

// Angles are computed where the call is recorded: on the caller's thread.
TEST_F(RopeOnDevice, TheCallersFloatingPointModesChangeNoBitAndStayAsTheyWere) {
  const Shape shape{.tokens = 64, .heads = 1, .dim = 128};
  const std::uint64_t bytes = shape.tokens * shape.dim * sizeof(float);
  std::vector<float> values(shape.tokens * shape.dim);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < 64; ++i) positions.push_back(kLast - i * 1000003);
  const Rotary rotary{.pairing = Pairing::halves, .theta = 5e5, .yarn = Yarn{.factor = 40, .original_context = 4096}};
  Buffer from = device.allocate(bytes).value();
  ASSERT_OK(from.write(std::as_bytes(std::span(values))));

  const auto rotated = [&](const std::function<void()>& change) {
    const Buffer to = device.allocate(bytes).value();
    const RopeTensor tensor{View::token_major(from, DType::f32, shape), MutView::token_major(to, DType::f32, shape)};
    Encoder encoder = device.encoder();
    std::fenv_t callers;
    std::fegetenv(&callers);
    change();
    rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = rotary});
    auto fence = std::move(encoder).submit();
    const int rounding = std::fegetround();
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr() & ~0x3fU;  // but for the flags of what happened
#else
    const unsigned modes = 0;
#endif
    std::fesetenv(&callers);
    EXPECT_OK(fence.value().wait());
    std::vector<std::byte> found(bytes);
    EXPECT_OK(to.read(found));
    return std::tuple(found, rounding, modes);
  };
  const auto [wanted, nearest, common] = rotated([] {});
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    const auto [found, rounding, modes] = rotated([mode] { std::fesetround(mode); });
    EXPECT_TRUE(found == wanted) << "rounding " << mode;
    EXPECT_EQ(rounding, mode);
  }
#if defined(__x86_64__)
  constexpr unsigned kFlushAndZero = 0x8040;
  const auto [flushed, flushed_rounding, flushes] = rotated([] { _mm_setcsr(_mm_getcsr() | kFlushAndZero); });
  EXPECT_TRUE(flushed == wanted);
  EXPECT_EQ(flushes, common | kFlushAndZero);
  constexpr unsigned kInexactMasked = 0x1000;
  const auto [trapped, trapped_rounding, traps] = rotated([] { _mm_setcsr(_mm_getcsr() & ~kInexactMasked); });
  EXPECT_TRUE(trapped == wanted);
  EXPECT_EQ(traps, common & ~kInexactMasked);
#endif
}

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

TEST_F(RopeOnDevice, SplittingABatchChangesNothing) {
  constexpr std::uint64_t kTokens = 33;
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const auto positions = some_positions(kTokens);
  for (const bool normed : {false, true}) {
    TensorUnderTest tensor(
        device, random, {.from = DType::bf16, .to = DType::bf16, .shape = {.tokens = kTokens, .heads = 3, .dim = 80}});
    if (normed) tensor.set_norm(device, random, {.epsilon = 1e-6}, DType::f32);
    expect_rotated(tensor, rotary, positions);
    const auto whole = tensor.result();
    tensor.clear_target();
    Encoder encoder = device.encoder();
    std::uint64_t done = 0;
    for (const std::uint64_t count : {1U, 16U, 2U, 14U}) {
      RopeTensor part = tensor.tensor;
      part.from = part.from.slice(done, count);
      part.to = part.to.slice(done, count);
      rope(encoder, {.tensors = {&part, 1}, .positions = std::span(positions).subspan(done, count), .rotary = rotary});
      done += count;
    }
    ASSERT_EQ(done, kTokens);
    ASSERT_OK(std::move(encoder).submit().value().wait());
    EXPECT_EQ(tensor.result(), whole);
  }
}

TEST_F(RopeOnDevice, TakesQueriesAndKeysOfDifferentKindsInOneCall) {
  const auto positions = some_positions(7);
  const Rotary rotary{.pairing = Pairing::halves, .theta = 5e5, .rope_dim = 32};
  TensorUnderTest queries(device, random,
                          {.from = DType::f32, .to = DType::f16, .shape = {.tokens = 7, .heads = 8, .dim = 64}});
  TensorUnderTest keys(
      device, random,
      {.from = DType::bf16, .to = DType::bf16, .shape = {.tokens = 7, .heads = 2, .dim = 48}, .in_place = true});
  const std::vector<RopeTensor> both{queries.tensor, keys.tensor};
  ASSERT_OK(run_rope(device, {.tensors = both, .positions = positions, .rotary = rotary}));
  EXPECT_LE(queries.worst_error(rotary, positions), 1);
  EXPECT_LE(keys.worst_error(rotary, positions), 1);
}

TEST_F(RopeOnDevice, ServesTensorsOneAfterTheOther) {
  // First in place, then from there to elsewhere: turned twice.
  const std::vector<std::int64_t> positions{3, 4, 5};
  const std::vector<std::int64_t> doubled{6, 8, 10};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  TensorUnderTest first(device, random, {.shape = {.tokens = 3, .heads = 2, .dim = 16}, .in_place = true});
  TensorUnderTest second(device, random, {.shape = {.tokens = 3, .heads = 2, .dim = 16}});
  const std::vector<RopeTensor> both{first.tensor, {.from = first.tensor.from, .to = second.tensor.to}};
  ASSERT_OK(run_rope(device, {.tensors = both, .positions = positions, .rotary = rotary}));
  for (std::uint64_t token = 0; token < 3; ++token) {
    const auto wanted = rotate_by_definition(rotary, std::span(doubled).subspan(token, 1), first.head_before(token, 1));
    const auto found = second.head_after(token, 1);
    for (std::uint64_t d = 0; d < 16; ++d) {
      EXPECT_NEAR(found[d], wanted.values[d], 2 * rope_bound(DType::f32, wanted.values[d], wanted.lengths[d]));
    }
  }
}

// Enough rows for every thread of the pool, which begin their parts in the middle of tokens.
TEST_F(RopeOnDevice, SharesOutRowsInAnyPlace) {
  constexpr std::uint64_t kTokens = 701;
  const auto positions = some_positions(kTokens);
  for (const bool normed : {false, true}) {
    TensorUnderTest tensor(device, random,
                           {.from = DType::f16,
                            .to = DType::f16,
                            .shape = {.tokens = kTokens, .heads = 5, .dim = 50},
                            .to_token_stride = 5 * 51 + 2,
                            .to_head_stride = 51});
    if (normed) tensor.tensor.norm = HeadNorm{.epsilon = 1e-6};
    expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4, .rope_dim = 32}, positions);
  }
}

// More rows than a device launches groups for: each group serves several, with a norm of its own for each. Tokens
// repeat, so that a small call, held against the definition, says what all of them must be.
TEST_F(RopeOnDevice, ServesMoreRowsThanGroups) {
  constexpr std::uint64_t kPeriod = 64;
  constexpr std::uint64_t kTokens = 8 * 65535 + 3 * kPeriod;
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  TensorUnderTest few(device, random, {.from = DType::f16, .to = DType::f16, .shape = {kPeriod, 1, 4}});
  TensorUnderTest many(device, random, {.from = DType::f16, .to = DType::f16, .shape = {kTokens, 1, 4}});
  const auto some = some_positions(kPeriod);
  std::vector<std::int64_t> positions(kTokens);
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    positions[token] = some[token % kPeriod];
    std::memcpy(many.source.data() + token * 8, few.source.data() + token % kPeriod * 8, 8);
  }
  many.write_source();
  few.tensor.norm = many.tensor.norm = HeadNorm{.epsilon = 1e-6};
  expect_rotated(few, rotary, some);
  ASSERT_OK(run_rope(device, {.tensors = {&many.tensor, 1}, .positions = positions, .rotary = rotary}));
  const auto wanted = few.result();
  const auto found = many.result();
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    ASSERT_EQ(std::memcmp(found.data() + token * 8, wanted.data() + token % kPeriod * 8, 8), 0) << token;
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

TEST_F(RopeOnDevice, InPlaceGivesTheBitsOfElsewhere) {
  const auto positions = some_positions(9);
  for (const bool normed : {false, true}) {
    // Odd strides: neighbours of different rows share a word.
    const TensorSpec spec{.from = DType::f16,
                          .to = DType::f16,
                          .shape = {.tokens = 9, .heads = 3, .dim = 35},
                          .from_token_stride = 3 * 35,
                          .from_head_stride = 35,
                          .from_dim_stride = 1};
    TensorUnderTest elsewhere(device, random, spec);
    TensorSpec here = spec;
    here.in_place = true;
    TensorUnderTest in_place(device, random, here);
    in_place.source = elsewhere.source;
    in_place.write_source();
    if (normed) {
      elsewhere.tensor.norm = HeadNorm{.epsilon = 1e-5};
      in_place.tensor.norm = HeadNorm{.epsilon = 1e-5};
    }
    for (const std::uint64_t rope_dim : {34U, 20U}) {
      in_place.write_source();
      const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4, .rope_dim = rope_dim};
      expect_rotated(elsewhere, rotary, positions);
      expect_rotated(in_place, rotary, positions);
      EXPECT_EQ(in_place.result(), elsewhere.result());
    }
  }
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

TEST_F(RopeOnDevice, NormsASpoiltHeadWithoutSpoilingOthers) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 3, .heads = 1, .dim = 32}});
  const auto sound = tensor.source;
  tensor.tensor.norm = HeadNorm{.epsilon = 1e-6};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const std::vector<std::int64_t> positions{1, 2, 3};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  const std::vector<std::vector<double>> wanted{tensor.head_after(0, 0), tensor.head_after(2, 0)};
  save_bits(tensor.source, DType::f32, 40, bits_of(std::numeric_limits<double>::quiet_NaN(), DType::f32));
  tensor.write_source();
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  EXPECT_EQ(tensor.head_after(0, 0), wanted[0]);
  EXPECT_EQ(tensor.head_after(2, 0), wanted[1]);
  for (const double value : tensor.head_after(1, 0)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(RopeOnDevice, NormsZerosToZeros) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 2, .heads = 1, .dim = 32}});
  std::ranges::fill(tensor.source, std::byte{0});
  tensor.write_source();
  tensor.tensor.norm = HeadNorm{.epsilon = 1e-6};
  expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4}, {4, 9});
  for (const double value : tensor.head_after(1, 0)) EXPECT_EQ(value, 0);
}

// Position 0 turns nothing: a norm alone. Then a rotation alone.
TEST_F(RopeOnDevice, FusedAndSeparateNormAgree) {
  for (const DTypeInfo& dtype : kDTypes) {
    for (const std::uint64_t dim : {64U, 128U, 512U}) {
      TensorUnderTest fused(device, random,
                            {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 4, .heads = 2, .dim = dim}});
      fused.set_norm(device, random, {.epsilon = 1e-6}, DType::f32);
      TensorUnderTest separate(
          device, random, {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 4, .heads = 2, .dim = dim}});
      const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
      const auto positions = some_positions(4);
      expect_rotated(fused, rotary, positions);

      RopeTensor norm_only{.from = fused.tensor.from, .to = separate.tensor.to, .norm = fused.tensor.norm};
      const RopeTensor turn_only = RopeTensor::in_place(separate.tensor.to);
      const std::vector<std::int64_t> zeros(4);
      Encoder encoder = device.encoder();
      rope(encoder, {.tensors = {&norm_only, 1}, .positions = zeros, .rotary = rotary});
      rope(encoder, {.tensors = {&turn_only, 1}, .positions = positions, .rotary = rotary});
      ASSERT_OK(std::move(encoder).submit().value().wait());

      // The separate one rounds both coordinates once more in between: half a last place of each.
      for (std::uint64_t token = 0; token < 4; ++token) {
        const auto one = fused.head_after(token, 1);
        const auto two = separate.head_after(token, 1);
        for (std::uint64_t d = 0; d < dim; ++d) {
          const double length = std::hypot(one[d], one[(d + dim / 2) % dim]);
          const double bound = 2 * last_place(dtype.dtype, length) + 1e-6 * length + kFlushed;
          EXPECT_NEAR(one[d], two[d], bound) << dtype.name << ", " << dim;
        }
      }
    }
  }
}

TEST_F(RopeOnDevice, TakesAWeightForEachHead) {
  constexpr std::uint64_t kHeads = 3;
  constexpr std::uint64_t kDim = 24;
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 2, .heads = kHeads, .dim = kDim}});
  Guarded weight(device, kHeads * kDim, DType::bf16);
  std::vector<std::byte> bytes(kHeads * kDim * 2);
  for (std::uint64_t i = 0; i < kHeads * kDim; ++i) {
    save_bits(bytes, DType::bf16, i, bits_of(0.25 * static_cast<double>(i % 31), DType::bf16));
  }
  weight.write(bytes);
  // [dim][head]: neither the heads' nor the dims' stride is the usual one.
  View view = View::token_major(weight.buffer, DType::bf16, {1, kHeads, kDim});
  view.offset = weight.offset;
  view.head_stride = 1;
  view.dim_stride = kHeads;
  const HeadNorm norm{.epsilon = 1e-6, .weight = view};
  tensor.tensor.norm = norm;
  const Rotary rotary{.pairing = Pairing::interleaved, .theta = 1e4};
  const std::vector<std::int64_t> positions{11, 12};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    std::vector<double> of_head;
    for (std::uint64_t d = 0; d < kDim; ++d)
      of_head.push_back(value_of(load_bits(bytes, DType::bf16, d * kHeads + head), DType::bf16));
    const auto normed = norm_by_definition(tensor.head_before(1, head), 1e-6, of_head);
    const RotatedHead wanted = rotate_by_definition(rotary, std::span(positions).subspan(1), normed);
    const auto found = tensor.head_after(1, head);
    for (std::uint64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(found[d], wanted.values[d], rope_bound(tensor.tensor, wanted.values[d], wanted.lengths[d]));
    }
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

TEST_F(RopeOnDevice, OfNothingIsNothing) {
  for (const Shape shape : {Shape{0, 2, 8}, Shape{3, 0, 8}}) {
    TensorUnderTest tensor(device, random, {.shape = shape});
    expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4}, some_positions(shape.tokens));
  }
}

TEST_F(RopeOnDevice, OrdersItselfAmongOtherCommands) {
  // Stored keys are the rotated ones, and a second rotation adds to the first.
  constexpr Shape kShape{.tokens = 4, .heads = 2, .dim = 16};
  TensorUnderTest keys(device, random, {.shape = kShape, .in_place = true});
  Guarded cache(device, 4 * 2 * 16, DType::f32);
  SlotView slots = SlotView::token_major(cache.buffer, DType::f32, {.page_slots = 4, .heads = 2, .dim = 16});
  slots.offset = cache.offset;
  const StorePair pair{keys.tensor.from, slots};
  const TokenRun run{.tokens = 4, .position = 0, .capacity = 4};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const std::vector<std::int64_t> positions{0, 1, 2, 3};
  const std::vector<std::int64_t> again{7, 7, 7, 7};
  Encoder encoder = device.encoder();
  rope(encoder, {.tensors = {&keys.tensor, 1}, .positions = positions, .rotary = rotary});
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  rope(encoder, {.tensors = {&keys.tensor, 1}, .positions = again, .rotary = rotary});
  ASSERT_OK(std::move(encoder).submit().value().wait());
  const auto stored = cache.read();
  for (std::uint64_t token = 0; token < 4; ++token) {
    const auto before = keys.head_before(token, 1);
    const auto once = rotate_by_definition(rotary, std::span(positions).subspan(token, 1), before);
    const std::vector<std::int64_t> sum{positions[token] + 7};
    const auto twice = rotate_by_definition(rotary, sum, before);
    const auto found = keys.head_after(token, 1);
    for (std::uint64_t d = 0; d < 16; ++d) {
      const double in_cache = value_of(load_bits(stored, DType::f32, (token * 2 + 1) * 16 + d), DType::f32);
      EXPECT_NEAR(in_cache, once.values[d], rope_bound(DType::f32, once.values[d], once.lengths[d]));
      EXPECT_NEAR(found[d], twice.values[d], 2 * rope_bound(DType::f32, twice.values[d], twice.lengths[d]));
    }
  }
}

TEST_F(RopeOnDevice, RefusedCallsAreNamedBySubmit) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 2, .heads = 1, .dim = 8}});
  const std::vector<std::int64_t> positions{1, -2};
  expect_error(run_rope(device, {.tensors = {&tensor.tensor, 1},
                                 .positions = positions,
                                 .rotary = {.pairing = Pairing::halves, .theta = 1e4}}),
               Errc::invalid_argument, {"rope: positions[1] is -2; wanted a number from 0 to 2147483647"});
}

}  // namespace
}  // namespace rota::test
