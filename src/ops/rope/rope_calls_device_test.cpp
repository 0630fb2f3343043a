#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <functional>
#include <tuple>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "ops/rope/rope_calls_reference.h"

// What a call is made of must not show in its bits: batches, tensors, rows, places, and the caller's thread.

namespace rota::test {
namespace {

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
