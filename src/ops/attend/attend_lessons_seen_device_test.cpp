#include <array>
#include <bit>

#include "ops/attend/attend_lessons_reference.h"

// Lessons about what is seen: by whom, when, and what must not be.

namespace rota::test {
namespace {

const Draw kZeros = [](std::mt19937_64&, std::uint64_t) { return 0.0; };

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

// Zero times NaN is NaN: what a query token does not see must not be multiplied, wherever it lies in the same key
// block.
TEST_F(AttendLessons, NotANumberStaysWithTheQueriesThatSeeIt) {
  constexpr std::uint64_t kQueryTokens = 64;
  for (const bool in_keys : {true, false}) {
    // The second is what NVIDIA's GPUs give, and the third is memory full of ones.
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7fffffffU),
                            std::bit_cast<float>(0xffffffffU), std::numeric_limits<float>::infinity()}) {
      for (const std::optional<std::uint64_t> window :
           {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(20)}) {
        SCOPED_TRACE(fmt::format("in keys {}, {}, window {}", in_keys, bad, window.value_or(0)));
        // f16 would cut a number's lower bits off.
        Case what{.k = DType::f32,
                  .v = DType::f32,
                  .kv_heads = 2,
                  .group = 1,
                  .lengths = {300, 90},
                  .query_tokens = {kQueryTokens, 2},
                  .window = window,
                  .dense = DType::f32};
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
