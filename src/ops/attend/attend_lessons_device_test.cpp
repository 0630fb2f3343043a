#include <array>

#include "harness/attend_on_device.h"

// Mistakes that others have made in attention over a cache, each with a test that would have found it.

namespace rota::test {
namespace {

const Draw kZeros = [](std::mt19937_64&, std::uint64_t) { return 0.0; };

class AttendLessons : public AttendOnDevice {
 protected:
  // A cache of one layer whose memory is NaN, so that whatever nobody stored shows.
  KvCache new_cache(const Case& of, std::uint64_t tokens, std::uint32_t sequences) {
    const KvGroup group{.layers = {0},
                        .kv_heads = of.kv_heads,
                        .head_dim = of.head_dim,
                        .value_dim = of.value_dim,
                        .k = of.k,
                        .v = of.v,
                        .dense = of.dense,
                        .page = of.page,
                        .tail = of.tail,
                        .sinks = of.sinks,
                        .window = of.window};
    KvCache cache =
        KvCache::create(
            device, {.groups = {group}, .max_tokens = tokens, .max_sequences = sequences, .max_step_tokens = tokens})
            .value();
    poison(cache.view({}, 0).value());
    return cache;
  }

  static void poison(const KvView& kv) {
    for (const KvSideView* side : {&kv.k, &kv.v}) {
      std::vector<Buffer> buffers{side->dense.buffer};
      if (side->sealed) buffers.push_back(side->sealed->buffer);
      if (side->sinks) buffers.push_back(side->sinks->buffer);
      for (Buffer& buffer : buffers) {
        buffer.write(std::vector<std::byte>(buffer.size_bytes(), Guarded::kPoison)).value();
      }
    }
  }

  void extend(KvCache& cache, Sequence sequence, const Numbers& k, const Numbers& v) {
    ASSERT_OK(run_on(device, [&](Encoder& encoder) {
      cache.extend(encoder, sequence, k.length()).value().append(encoder, 0, view_of(k), view_of(v));
    }));
  }

  // |found - wanted| / |wanted|, of all vectors, where wanted is over the numbers before they were sealed.
  double error_of_originals(const Answer& found, const Asked& asked, const std::vector<Numbers>& k,
                            const std::vector<Numbers>& v) {
    const KvView exact = lay_slots({.dtype = DType::f32}, k, v);
    const auto vectors = all_vectors(asked);
    const auto wanted = Definition(exact).results(call_of(exact, asked), vectors);
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      for (std::uint64_t d = 0; d < wanted[i].out.size(); ++d) {
        error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
        energy += std::pow(wanted[i].out[d], 2);
      }
    }
    return std::sqrt(error / energy);
  }

  // Bytes of a sealed page's token scale.
  static std::uint64_t scale_at(const SealedView& view, std::uint64_t page, std::uint64_t head, std::uint64_t token) {
    const std::uint64_t mean = view.format.has_mean() ? core::round_up(2 * view.format.head_dim, 64) : 0;
    return view.offset_bytes + page * view.page_stride_bytes + head * view.head_stride_bytes + mean + 2 * token;
  }
};

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

TEST_F(AttendLessons, QuantisationIsNotBypassed) {
  // In a cache: once pages are sealed, what lies in dense pages that nobody refers to is of no account.
  const Case what{.k = turbo(8), .v = turbo(8), .lengths = {400}};
  Stored stored = store_sequences(what);
  KvCache cache = new_cache(what, 1000, 1);
  const Sequence sequence = cache.open_sequence().value();
  extend(cache, sequence, stored.k[0], stored.v[0]);
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { cache.settle(encoder).value(); }));
  const KvView kv = cache.view({&sequence, 1}, 0).value();
  ASSERT_EQ(kv.k.sequences[0]->sealed_pages, 5U);
  const Asked asked{.q = queries(what)};
  const Answer found = expect_defined(kv, asked);
  for (const KvSideView* side : {&kv.k, &kv.v}) {
    Buffer dense = side->dense.buffer;
    const KvPages& pages = *side->sequences[0];
    for (std::uint32_t page = 0; page < side->dense.shape.pages; ++page) {
      if (std::ranges::count(pages.page_table.begin() + 5, pages.page_table.end(), page) > 0) continue;
      const std::vector<std::byte> garbage(side->dense.page_stride * 2, std::byte{0x3c});
      ASSERT_OK(dense.write(garbage, (side->dense.offset + page * side->dense.page_stride) * 2));
    }
  }
  EXPECT_TRUE(run(kv, asked) == found);
  EXPECT_GT(error_of_originals(found, asked, stored.k, stored.v), 0.002) << "eight bits cannot be so good";

  // The sealed bytes count: another scale is another result.
  for (const KvSideView* side : {&kv.k, &kv.v}) {
    Buffer sealed = side->sealed->buffer;
    const std::uint64_t at = scale_at(*side->sealed, side->sequences[0]->page_table[1], 0, 40);
    std::array<std::byte, 2> scale{};
    ASSERT_OK(sealed.read(scale, at));
    scale[1] ^= std::byte{0x08};  // four times as large, or as small
    ASSERT_OK(sealed.write(scale, at));
    EXPECT_FALSE(expect_defined(kv, asked) == found);
  }
}

// Values are positions, so that an average over other keys than the ring's is another number.
TEST_F(AttendLessons, AFullRingStartsAtItsOldestKey) {
  constexpr std::uint64_t kSlots = 100;
  for (const std::uint64_t length : {1U, 99U, 100U, 101U, 199U, 200U, 201U, 250U}) {
    Numbers k = draw(length, 1, 64, kZeros);
    Numbers v = draw(length, 1, 64, [](std::mt19937_64&, std::uint64_t p) { return static_cast<double>(p); });
    for (const std::uint64_t page : {100U, 7U}) {
      const KvView kv = lay_slots({.page_slots = page, .capacities = {kSlots}}, {k}, {v});
      const Answer found = expect_defined(kv, {.q = queries(1, 8, 64)});
      const auto keys = static_cast<double>(std::min<std::uint64_t>(length, kSlots));
      const double wanted = static_cast<double>(length) - (keys + 1) / 2;
      EXPECT_NEAR(found.log_sum_exp_at({0, 0}), std::log(keys), kTolerance) << length;
      for (std::uint64_t d = 0; d < 64; ++d) ASSERT_NEAR(found.at({0, 7}, d), wanted, kTolerance * 250) << length;
    }
  }
}

TEST_F(AttendLessons, APromptInOneStepFillsTheSealedPages) {
  const Case what{.k = turbo(8), .v = turbo(8), .lengths = {700}, .query_tokens = {3}};
  const Stored stored = store_sequences(what);
  KvCache cache = new_cache(what, 1000, 1);
  const Sequence sequence = cache.open_sequence().value();
  extend(cache, sequence, stored.k[0], stored.v[0]);
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { cache.settle(encoder).value(); }));
  const KvView kv = cache.view({&sequence, 1}, 0).value();
  ASSERT_EQ(kv.k.sequences[0]->sealed_pages, 9U);
  const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
  const Answer found = expect_defined(kv, asked);
  EXPECT_LT(error_of_originals(found, asked, stored.k, stored.v), 0.02);
}

// Storing, sealing and attending in one submission, where a barrier that is missing lets one overtake the other. Of
// eight bits the result is near that of the numbers themselves, which it is not where a rotation did not take place.
TEST_F(AttendLessons, NothingOvertakesTheRotationOrTheStoring) {
  const Case what{.k = turbo(8), .v = turbo(8), .kv_heads = 2, .group = 4, .lengths = {330}, .query_tokens = {1}};
  const Stored stored = store_sequences(what);
  const auto tokens = [&](const Numbers& all, std::uint64_t first, std::uint64_t count) {
    const auto begin = all.values.begin() + static_cast<std::ptrdiff_t>(first * all.heads * all.dim);
    return Numbers{all.heads, all.dim, {begin, begin + static_cast<std::ptrdiff_t>(count * all.heads * all.dim)}};
  };
  struct Step {
    std::uint64_t first, count;
  };
  const auto query_tokens_of = [](const Step& step) { return std::min<std::uint64_t>(step.count, 3); };
  const std::array steps{Step{0, 190}, Step{190, 70}, Step{260, 1}, Step{261, 1}, Step{262, 68}};
  std::vector<View> k;
  std::vector<View> v;
  std::vector<View> q;
  for (const Step& step : steps) {
    k.push_back(view_of(tokens(stored.k[0], step.first, step.count)));
    v.push_back(view_of(tokens(stored.v[0], step.first, step.count)));
    q.push_back(queries(query_tokens_of(step), 8, 64));
  }
  std::vector<std::vector<std::byte>> wanted;
  for (int turn = 0; turn < 6; ++turn) {
    const bool one_submission = turn > 0;
    KvCache cache = new_cache(what, 400, 1);
    const Sequence sequence = cache.open_sequence().value();
    std::vector<Guarded> outs;
    std::vector<KvView> views(steps.size());
    std::optional<Encoder> encoder;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!encoder) encoder = device.encoder();
      KvStep step = cache.extend(*encoder, sequence, steps[i].count).value();
      step.append(*encoder, 0, k[i], v[i]);
      views[i] = step.view(0).value();
      outs.emplace_back(device, query_tokens_of(steps[i]) * 8 * 64, DType::f32);
      const Asked asked{.q = q[i], .query_tokens = {query_tokens_of(steps[i])}, .log_sum_exp = false};
      Attend call = call_of(views[i], asked);
      call.out.buffer = outs.back().buffer;
      call.out.offset = outs.back().offset;
      attend(*encoder, call);
      if (one_submission && i + 1 < steps.size()) continue;
      ASSERT_OK(std::move(*encoder).submit().value().wait());
      encoder.reset();
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!one_submission) {
        wanted.push_back(outs[i].read());
        const Answer found{{query_tokens_of(steps[i]), 8, 64}, DType::f32, wanted.back()};
        const Asked asked{.q = q[i], .query_tokens = {query_tokens_of(steps[i])}};
        const std::uint64_t length = steps[i].first + steps[i].count;
        EXPECT_LT(error_of_originals(found, asked, {tokens(stored.k[0], 0, length)}, {tokens(stored.v[0], 0, length)}),
                  0.02);
      }
      EXPECT_TRUE(outs[i].read() == wanted[i]) << "turn " << turn << ", step " << i;
    }
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
    Case what{.head_dim = 16, .value_dim = 16, .group = 2, .lengths = {kKeys + 77}, .page = sealed ? 128U : 64U};
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

TEST_F(AttendLessons, StaleKeysOfClosedAndTruncatedSequencesAreNotSeen) {
  const Case what{.k = turbo(8), .v = turbo(8), .lengths = {300}, .query_tokens = {3}};
  KvCache cache = new_cache(what, 320, 1);
  const Draw huge = [](std::mt19937_64& from, std::uint64_t) { return from() % 2 == 0 ? 6e4 : -6e4; };
  const Sequence old = cache.open_sequence().value();
  extend(cache, old, draw(310, 1, 64, huge), draw(310, 1, 64, huge));
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { cache.settle(encoder).value(); }));
  ASSERT_OK(cache.close(old));
  for (const std::uint64_t length : {5U, 130U, 300U}) {
    const Sequence sequence = cache.open_sequence().value();
    const Stored stored = store_sequences({.lengths = {length}});
    extend(cache, sequence, stored.k[0], stored.v[0]);
    ASSERT_OK(run_on(device, [&](Encoder& encoder) { cache.settle(encoder).value(); }));
    const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Answer found = expect_defined(cache.view({&sequence, 1}, 0).value(), asked);
    EXPECT_LT(error_of_originals(found, asked, stored.k, stored.v), 0.02);
    // Tokens that were taken back leave their numbers in the slots.
    extend(cache, sequence, draw(10, 1, 64, huge), draw(10, 1, 64, huge));
    ASSERT_OK(run_on(device, [&](Encoder& encoder) { cache.truncate(encoder, sequence, length).value(); }));
    EXPECT_TRUE(run(cache.view({&sequence, 1}, 0).value(), asked) == found);
    ASSERT_OK(cache.close(sequence));
  }
}

TEST_F(AttendLessons, AWindowSeesNotOneKeyMore) {
  for (const bool sealed : {false, true}) {
    for (const std::uint64_t window : {1U, 64U, 100U}) {
      // One key outside is so loud that it would drown all others; the last one inside is not.
      Case what{.lengths = {500}, .window = window, .v_draw = [&](std::mt19937_64&, std::uint64_t position) {
                  return position == 499 - window ? 1e4 : 1.0;
                }};
      if (sealed) what.k = what.v = turbo(4);
      const Stored stored = store_sequences(what);
      Asked asked{.q = queries(what)};
      const Answer found = expect_defined(stored.kv, asked);
      KvView wider = stored.kv;
      wider.window = window + 1;
      const Answer with_one_more = run(wider, asked);
      for (std::uint64_t head = 0; head < 8; ++head) {
        EXPECT_NEAR(found.at({0, head}, 5), 1, 0.3);
        EXPECT_GT(with_one_more.at({0, head}, 5), 3);
      }
    }
  }
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

// Zero times NaN is NaN: what a query token does not see must not be multiplied, wherever it lies in the same key
// block.
TEST_F(AttendLessons, NotANumberStaysWithTheQueriesThatSeeIt) {
  constexpr std::uint64_t kQueryTokens = 64;
  for (const bool in_keys : {true, false}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::optional<std::uint64_t> window :
           {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(20)}) {
        SCOPED_TRACE(fmt::format("in keys {}, {}, window {}", in_keys, bad, window.value_or(0)));
        Case what{.kv_heads = 2, .group = 1, .lengths = {300, 90}, .query_tokens = {kQueryTokens, 2}, .window = window};
        Stored stored = store_sequences(what);
        const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
        const Answer clean = run(stored.kv, asked);
        constexpr std::uint64_t kPosition = 260;
        auto& numbers = (in_keys ? stored.k : stored.v)[0];
        numbers.values[(kPosition * 2 + 1) * 64 + 5] = bad;  // of the second head alone
        const Answer found = run(lay_out(what, stored.k, stored.v), asked);
        for (const QueryVector& vector : all_vectors(asked)) {
          const std::uint64_t position = vector.token < kQueryTokens ? 300 - kQueryTokens + vector.token : 0;
          const bool sees = vector.token < kQueryTokens && vector.head == 1 && position >= kPosition &&
                            position < kPosition + window.value_or(kQueryTokens);
          const std::uint64_t at = (vector.token * 2 + vector.head) * 64 * 4;
          const bool same = std::equal(found.out.begin() + static_cast<std::ptrdiff_t>(at),
                                       found.out.begin() + static_cast<std::ptrdiff_t>(at + 256),
                                       clean.out.begin() + static_cast<std::ptrdiff_t>(at));
          if (!sees) {
            ASSERT_TRUE(same) << vector.token << ", " << vector.head;
          } else if (std::isnan(bad)) {
            ASSERT_TRUE(std::isnan(found.at(vector, 5))) << vector.token << ", " << vector.head;
          } else if (!in_keys) {
            ASSERT_FALSE(std::isfinite(found.at(vector, 5))) << vector.token << ", " << vector.head;
          }
        }
      }
    }
  }
}

// Sealed tokens outside the window share tiles and units with those inside.
TEST_F(AttendLessons, SealedTokensThatNobodySeesMayHoldAnything) {
  Case what{.k = turbo(4), .v = turbo(4), .lengths = {300}, .query_tokens = {3}, .window = 100, .tail = 0};
  Stored stored = store_sequences(what);
  const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
  const Answer clean = expect_defined(stored.kv, asked);
  for (const KvSideView* side : {&stored.kv.k, &stored.kv.v}) {
    Buffer sealed = side->sealed->buffer;
    const KvPages& pages = *side->sequences[0];
    ASSERT_EQ(pages.first_page, 3U);  // 198 is the first key that is seen, in the page from 192 on
    const std::array nan{std::byte{0xff}, std::byte{0x7f}};
    for (std::uint64_t token = 0; token < 198 - 192; ++token) {
      ASSERT_OK(sealed.write(nan, scale_at(*side->sealed, pages.page_table[0], 0, token)));
    }
  }
  EXPECT_TRUE(run(stored.kv, asked) == clean);
}

}  // namespace
}  // namespace rota::test
