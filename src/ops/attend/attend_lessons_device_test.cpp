#include <array>

#include "ops/attend/attend_lessons_reference.h"

// Lessons about numbers: scales, types, shapes and sizes.

namespace rota::test {
namespace {

// The sum of one key is its logit.
TEST_F(AttendLessons, TheScaleIsTheCallersAndNotOneOverTheRootOfTwiceTheDim) {
  for (const bool sealed : {false, true}) {
    Case what{.group = 1, .lengths = {128}, .query_tokens = {128}, .window = 1, .tail = 0, .sinks = 0};
    if (sealed) what.k = what.v = turbo(4);
    const Stored stored = store_sequences(what);
    ops::reference::StoredSide keys(stored.kv.k);
    Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const auto q = ops::reference::contents_of(asked.q.buffer);
    for (const double scale : {0.125, 1.0, -0.3}) {
      asked.scale = scale;
      const Answer found = run(stored.kv, asked);
      for (const QueryVector& vector : all_vectors(asked)) {
        const double* const key = keys.vector(*stored.kv.k.sequences[0], vector.token, 0);
        double product = 0;
        for (std::uint64_t d = 0; d < 64; ++d) {
          product += key[d] * ops::reference::number_at(q, asked.q, vector.token, vector.head, d);
        }
        ASSERT_NEAR(found.log_sum_exp_at(vector), scale * product, kTolerance * (1 + std::abs(scale * 64)));
      }
    }
  }
}

TEST_F(AttendLessons, ValuesAreReadByTheirOwnTypeAndSizeAndNotByTheKeys) {
  Case what{.k = turbo(3),
            .v = DType::f32,
            .head_dim = 48,
            .value_dim = 64,
            .group = 2,
            .lengths = {192},
            .tail = 0,
            .sinks = 0};
  expect_defined(what);
  std::swap(what.k, what.v);
  std::swap(what.head_dim, what.value_dim);
  expect_defined(what);
}

// Values tell whose they are, and an average of equal numbers is that number.
TEST_F(AttendLessons, EverySequenceOfABatchAndEveryGroupReadsItsOwnHead) {
  for (const bool sealed : {false, true}) {
    Case what{.kv_heads = 3, .group = 4, .lengths = {200, 1, 130, 70, 200}, .query_tokens = {2, 1, 3, 1, 2}};
    if (sealed) what.k = turbo(4);
    Stored stored = store_sequences(what);
    for (std::size_t sequence = 0; sequence < stored.v.size(); ++sequence) {
      for (std::size_t i = 0; i < stored.v[sequence].values.size(); ++i) {
        stored.v[sequence].values[i] = static_cast<float>(16 * (sequence + 1) + i / 64 % 3);
      }
    }
    stored.kv = lay_out(what, stored.k, stored.v);
    const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Answer found = expect_defined(stored.kv, asked);
    const std::array<std::uint64_t, 9> sequence_of{0, 0, 1, 2, 2, 2, 3, 4, 4};
    for (const QueryVector& vector : all_vectors(asked)) {
      const auto wanted = static_cast<double>(16 * (sequence_of[vector.token] + 1) + vector.head / 4);
      for (std::uint64_t d = 0; d < 64; ++d) ASSERT_NEAR(found.at(vector, d), wanted, kTolerance * wanted);
    }
  }
}

// A key of zeros is sealed with the scale -0, which leaves the page's mean out.
TEST_F(AttendLessons, KeysOfZerosAmongOthersWithAMean) {
  std::normal_distribution<double> normal(4, 1);
  const Draw draw = [&normal](std::mt19937_64& numbers, std::uint64_t position) {
    return position % 3 == 1 ? 0 : normal(numbers);
  };
  expect_defined(Case{.k = turbo(4), .v = turbo(4), .lengths = {200}, .k_draw = draw, .v_draw = draw});
}

// Bytes that no seal() wrote.
TEST_F(AttendLessons, InfiniteAndNaNScalesAndMeansCountAsZero) {
  const Case what{.k = turbo(4), .v = turbo(4), .lengths = {200}};
  const Stored stored = store_sequences(what);
  const Asked asked{.q = queries(what)};
  const Answer sound = expect_defined(stored.kv, asked);
  const auto spoil = [&](const KvSideView& side, std::uint64_t at, std::uint16_t half) {
    Buffer sealed = side.sealed->buffer;
    ASSERT_OK(sealed.write(std::as_bytes(std::span(&half, 1)), at));
  };
  for (const unsigned bits : {0x7c00U, 0xfc00U, 0x7e01U, 0xfe01U}) {
    const auto half = static_cast<std::uint16_t>(bits);
    spoil(stored.kv.k, scale_at(*stored.kv.k.sealed, stored.kv.k.sequences[0]->page_table[1], 0, 3 + half % 7), half);
    spoil(stored.kv.v, scale_at(*stored.kv.v.sealed, stored.kv.v.sequences[0]->page_table[1], 0, 3 + half % 7), half);
    const std::uint64_t mean = stored.kv.k.sequences[0]->page_table[0] * stored.kv.k.sealed->page_stride_bytes;
    spoil(stored.kv.k, stored.kv.k.sealed->offset_bytes + mean + 2 * (half % 31), half);
    EXPECT_FALSE(expect_defined(stored.kv, asked) == sound);
  }
}

// A query of one dim alone reads that dim of a key through the whole rotation.
TEST_F(AttendLessons, LargeHeadsAreRotatedWhole) {
  constexpr std::uint32_t kDim = 1024;
  const Case what{.k = turbo(8),
                  .v = turbo(8),
                  .head_dim = kDim,
                  .value_dim = kDim,
                  .lengths = {128},
                  .query_tokens = {128},
                  .window = 1,
                  .tail = 0,
                  .sinks = 0};
  const Stored stored = store_sequences(what);
  Numbers q{8, kDim, std::vector<float>(std::uint64_t{128} * 8 * kDim)};
  for (std::uint64_t vector = 0; vector < 128U * 8; ++vector) q.values[vector * kDim + vector] = 1;
  const Asked asked{.q = view_of(q), .query_tokens = what.query_tokens, .scale = 1};
  const Answer found = run(stored.kv, asked);
  // 8 bits err by 0.006 deviations; one of 100,000 numbers by no more than six times that.
  for (const QueryVector& vector : all_vectors(asked)) {
    const std::uint64_t d = vector.token * 8 + vector.head;
    ASSERT_NEAR(found.log_sum_exp_at(vector), static_cast<double>(stored.k[0].vector(vector.token, 0)[d]), 0.04) << d;
    if (vector.head != 0) continue;
    for (std::uint64_t i = 0; i < kDim; ++i) {
      ASSERT_NEAR(found.at(vector, i), static_cast<double>(stored.v[0].vector(vector.token, 0)[i]), 0.04) << i;
    }
  }
}

// Powers of two are exact where f16 has no denormals: what scales keys or values alone must show, and what undoes it
// must undo it to the bit.
TEST_F(AttendLessons, ScaleFactorsDoNotCancel) {
  const Draw coarse = [normal = gaussian(64)](std::mt19937_64& from, std::uint64_t position) {
    return std::round(normal(from, position)) / 64;
  };
  for (const bool sealed : {false, true}) {
    Case what{.lengths = {200}, .query_tokens = {3}, .k_draw = coarse, .v_draw = coarse};
    if (sealed) what.k = what.v = turbo(4);
    const Stored stored = store_sequences(what);
    const auto times = [](std::vector<Numbers> sequences, float factor) {
      for (float& value : sequences[0].values) value *= factor;
      return sequences;
    };
    Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Answer plain = run(stored.kv, asked);
    const KvView larger_values = lay_out(what, stored.k, times(stored.v, 4));
    const Answer four_times = run(larger_values, asked);
    for (const QueryVector& vector : all_vectors(asked)) {
      for (std::uint64_t d = 0; d < 64; ++d) ASSERT_EQ(four_times.at(vector, d), 4 * plain.at(vector, d));
    }
    EXPECT_EQ(four_times.log_sum_exp, plain.log_sum_exp);
    const KvView larger_keys = lay_out(what, times(stored.k, 4), stored.v);
    EXPECT_FALSE(expect_defined(larger_keys, asked) == plain);
    asked.scale = 1.0 / 8 / 4;
    EXPECT_TRUE(run(larger_keys, asked) == plain);
  }
}

TEST_F(AttendLessons, AMillionKeys) {
  constexpr std::uint64_t kKeys = std::uint64_t{1} << 20;
  for (const bool sealed : {true, false}) {
    if (!sealed && !on_cpu()) break;  // takes too long there
    Case what{.head_dim = 16, .value_dim = 16, .group = 2, .lengths = {kKeys + 77}, .page = 64};
    if (sealed) what.k = what.v = turbo(4);
    const Stored stored = store_sequences(what);
    Asked asked{.q = queries(what)};
    Definition definition(stored.kv);
    const std::vector<QueryVector> vectors{{0, 0}, {0, 1}};
    asked.alibi_slopes = per_head({1e-3F, 0});
    KvView windowed = stored.kv;
    for (const std::uint64_t window : {std::uint64_t{70}, kKeys + 1}) {
      windowed.window = window;
      expect_defined(windowed, asked, run(windowed, asked), definition, vectors);
    }
  }
}

// Of 2^32 elements and more; only the CPU takes so much in one view, and no memory that is not touched.
TEST_F(AttendLessons, ElementsBeyondFourBillion) {
  if (!on_cpu()) GTEST_SKIP();
  constexpr std::uint64_t kStride = (std::uint64_t{1} << 32) + 320;
  const Numbers k = draw(64, 1, 16, gaussian());
  const Numbers v = draw(64, 1, 16, gaussian());
  const std::vector<std::uint32_t> table{1, 0};
  SlotView slots = SlotView::token_major({}, DType::f16, {.pages = 2, .page_slots = 32, .heads = 1, .dim = 16});
  slots.page_stride = kStride;
  slots.buffer = device.allocate((kStride + 2 * 512) * 2).value();
  SlotView values = slots;
  values.offset = 512;
  for (const auto& [view, from] : {std::pair(&slots, &k), std::pair(&values, &v)}) {
    for (std::uint64_t page = 0; page < 2; ++page) {
      std::vector<std::byte> bytes(32U * 16 * 2);
      for (std::uint64_t i = 0; i < 32U * 16; ++i) put(bytes, DType::f16, i, from->values[page * 32 * 16 + i]);
      ASSERT_OK(view->buffer.write(bytes, (view->offset + table[page] * kStride) * 2));
    }
  }
  const KvView far = KvView::of_slots(
      slots, values, std::vector<TokenRun>{{.tokens = 64, .position = 0, .capacity = 64, .page_table = table}});
  const Asked asked{.q = queries(2, 8, 16), .query_tokens = {2}};
  EXPECT_TRUE(run(far, asked) == run(lay_slots({}, {k}, {v}), asked));
}

TEST_F(AttendLessons, ASoftCapIsNotIgnored) {
  for (const bool sealed : {false, true}) {
    Case what{.group = 1, .lengths = {128}, .query_tokens = {128}, .window = 1, .tail = 0, .sinks = 0};
    if (sealed) what.k = what.v = turbo(4);
    const Stored stored = store_sequences(what);
    Asked asked{.q = queries(what), .query_tokens = what.query_tokens, .scale = 1};
    const Answer plain = run(stored.kv, asked);
    for (const double cap : {0.5, 5.0, 50.0}) {
      asked.soft_cap = cap;
      const Answer capped = run(stored.kv, asked);
      for (const QueryVector& vector : all_vectors(asked)) {
        ASSERT_NEAR(capped.log_sum_exp_at(vector), cap * std::tanh(plain.log_sum_exp_at(vector) / cap),
                    kTolerance * 2 * cap);
      }
    }
  }
}

}  // namespace
}  // namespace rota::test
