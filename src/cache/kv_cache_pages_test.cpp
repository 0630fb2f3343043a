#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache_run_reference.h"
#include "harness/cpu_time.h"
#include "harness/elements.h"
#include "harness/environment.h"
#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// Values and pages: what is where, what is moved, and when pages are free again.

namespace rota::test {
namespace {

TEST(KvCache, AgreesWithPlainListsAfterEveryRandomStep) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  cache::reference::run_random_steps(
      device, {.steps = random_steps(), .first_seed = number_from("ROTA_TEST_CACHE_SEED", 1), .attend_every = 10});
}

TEST_F(KvCacheCalls, WithinItsBudgetASequenceThatIsOnlyExtendedFindsPages) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    KvCacheSpec spec = cache::reference::random_spec(random);
    for (KvGroup& group : spec.groups) {
      group.kv_heads = 1;
      group.value_dim.reset();
      group.v_in_k = false;
      group.head_dim = 16;
    }
    KvCache cache = make(spec);
    std::vector<Sequence> sequences;
    for (std::uint32_t i = 0; i < spec.max_sequences; ++i) sequences.push_back(cache.open_sequence().value());
    std::uint64_t left = *spec.max_tokens;
    const bool one_by_one = random() % 4 == 0;
    while (left > 0) {
      std::vector<KvExtension> extensions;
      std::uint64_t of_step = std::min(left, spec.max_step_tokens);
      for (const Sequence sequence : sequences) {
        if (of_step == 0 || random() % 2 == 0) continue;
        const std::uint64_t tokens = one_by_one ? 1 : 1 + random() % of_step;
        extensions.push_back({sequence, tokens});
        of_step -= tokens;
        left -= tokens;
      }
      if (extensions.empty()) continue;
      const Status status = extend(cache, extensions);
      ASSERT_TRUE(status.ok()) << status.error().message << "; seed " << seed << ", " << left << " tokens left";
    }
  }
}

TEST_F(KvCacheCalls, ForkSharesAHundredThousandTokensInUnderAMillisecond) {
  KvCache cache =
      make({.groups = {{.layers = first_layers(32), .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4)}},
            .max_tokens = 110'000,
            .max_sequences = 40,
            .max_step_tokens = 8192});
  const Sequence sequence = sequence_of(cache, 100'100);
  Encoder settling = device.encoder();
  ASSERT_OK(cache.settle(settling));
  ASSERT_OK(std::move(settling).submit());
  const KvCounters before = cache.counters();
  std::vector<double> milliseconds;
  for (int i = 0; i < 30; ++i) {
    const auto start = cpu_time();
    Encoder encoder = device.encoder();
    ASSERT_OK(cache.fork(encoder, sequence));
    milliseconds.push_back(std::chrono::duration<double, std::milli>(cpu_time() - start).count());
    ASSERT_OK(std::move(encoder).submit().value().wait());
  }
  std::ranges::sort(milliseconds);
  const double median = milliseconds[milliseconds.size() / 2];
  RecordProperty("milliseconds", std::to_string(median));
  EXPECT_LT(median, kSanitized ? 10.0 : 1.0);
  const KvCounters after = cache.counters();
  // Each copied the tokens of a page that is not full, and no sealed page.
  const std::uint64_t settled = (100'100 - 128) / 128 * 2;
  EXPECT_EQ(after.sealed.used, settled);
  EXPECT_EQ(after.sealed.shared, settled);
  EXPECT_EQ(after.seals, settled);
  EXPECT_EQ(after.copied_bytes - before.copied_bytes, 30U * (100'100 % 128) * 32 * 16 * 2 * 2);
}

TEST_F(KvCacheCalls, CarriesAMillionTokens) {
  KvGroup group = small_group();
  group.layers = {0};
  group.page = 128;
  KvCache cache = make({.groups = {group}, .max_tokens = 1'048'576, .max_step_tokens = 65536});
  const Sequence sequence = sequence_of(cache, 1'048'576);
  const KvView view = cache.view({&sequence, 1}, 0).value();
  EXPECT_EQ(view.lengths.front(), 1'048'576U);
  EXPECT_EQ(view.k.sequences.front()->page_table.size(), 8192U);
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, sequence, 77'777));
  EXPECT_OK(std::move(encoder).submit());
  EXPECT_EQ(cache.counters().unseals, 2U);
  EXPECT_EQ(cache.counters().sealed.used, 2 * (77'777U / 128));
}

// A step may write to pages that it seals, so that it takes no others. If it is dropped it has written nothing.
TEST_F(KvCacheCalls, AStepTakesThePagesThatItSealsAndADroppedOneLeavesThem) {
  KvCache cache = make();
  const Sequence sequence = sequence_of(cache, 300);
  const KvView before = cache.view({&sequence, 1}, 0).value();
  std::vector<std::byte> old(before.k.dense.buffer.size_bytes());
  before.k.dense.buffer.read(old).value();
  const KvCounters counters = cache.counters();
  const Buffer source = device.allocate(64).value();
  for (const bool submitted : {false, true}) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 64).value();
    EXPECT_EQ(cache.counters().dense.used, counters.dense.used);
    View x = values(64);
    x.buffer = source;
    for (const std::uint32_t layer : {0U, 1U}) step.append(encoder, layer, x, x);
    std::optional<Encoder> ending(std::move(encoder));
    if (submitted) {
      ASSERT_OK(std::move(*ending).submit().value().wait());
      break;
    }
    ending.reset();
    std::vector<std::byte> now(old.size());
    before.k.dense.buffer.read(now).value();
    EXPECT_EQ(now, old);
    EXPECT_EQ(*cache.view({&sequence, 1}, 0)->k.sequences.front(), *before.k.sequences.front());
  }
  EXPECT_GT(cache.counters().seals, counters.seals);
  EXPECT_EQ(cache.counters().dense.used, counters.dense.used);
}

TEST_F(KvCacheCalls, PagesWaitForEncodersThatMayStillTouchThem) {
  KvCache cache = make();
  const Sequence sequence = sequence_of(cache, 300);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, 2).value();
  ASSERT_OK(std::move(encoder).submit());
  Encoder first = device.encoder();
  append(first, step, {0});
  Encoder second = device.encoder();
  append(second, step, {1});
  const std::uint64_t used = cache.counters().dense.used;
  ASSERT_OK(cache.close(sequence));
  Encoder third = device.encoder();  // came later: nobody waits for it
  KvStep unrelated = cache.extend(third, cache.open_sequence().value(), 1).value();
  append(third, unrelated, {0, 1});
  EXPECT_EQ(cache.counters().dense.used, used + 2);
  ASSERT_OK(std::move(first).submit());
  EXPECT_EQ(cache.counters().dense.used, used + 2);
  {
    const Encoder dropped = std::move(second);
  }
  EXPECT_EQ(cache.counters().dense.used, 2U);
  EXPECT_EQ(cache.counters().sealed.used, 0U);
  ASSERT_OK(std::move(third).submit());
  EXPECT_EQ(cache.counters().tokens, 1U);
}

// Steps of constant values, to see what is where.
class KvCacheValues : public KvCacheCalls {
 protected:
  void append(Encoder& encoder, KvStep& step, std::uint32_t layer, float value) {
    const std::vector<float> numbers(16, value);
    Buffer source = device.allocate(64).value();
    source.write(std::as_bytes(std::span(numbers))).value();
    View x = values(step.positions().size());
    x.buffer = source;
    step.append(encoder, layer, x, x);
  }

  // A step in a submission of its own.
  void extend(Sequence sequence, std::uint64_t tokens, float value) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, tokens).value();
    for (const std::uint32_t layer : {0U, 1U}) append(encoder, step, layer, value);
    ASSERT_OK(std::move(encoder).submit());
  }

  // The first key's dim 0 of each token that is dense.
  std::vector<float> dense_keys(Sequence sequence) {
    const KvView view = cache.view({&sequence, 1}, 0).value();
    const KvPages& pages = *view.k.sequences.front();
    std::vector<std::byte> bytes(view.k.dense.buffer.size_bytes());
    view.k.dense.buffer.read(bytes).value();
    std::vector<float> keys;
    for (std::uint64_t position = pages.sealed_pages * 64; position < view.lengths.front(); ++position) {
      const std::uint64_t at = view.k.dense.offset +
                               pages.page_table[position / 64 - pages.first_page] * view.k.dense.page_stride +
                               position % 64 * view.k.dense.slot_stride;
      keys.push_back(f32_from_f16(static_cast<std::uint16_t>(load_bits(bytes, DType::f16, at))));
    }
    return keys;
  }

  KvCache cache = make();
};

TEST_F(KvCacheValues, NothingOfADroppedStepReachesTheTokensThatComeBack) {
  const Sequence sequence = cache.open_sequence().value();
  extend(sequence, 10, 1);
  std::optional<Encoder> dropped = device.encoder();
  ASSERT_OK(cache.truncate(*dropped, sequence, 5));
  KvStep step = cache.extend(*dropped, sequence, 5).value();
  Encoder other = device.encoder();
  append(other, step, 0, 7);
  expect_error(std::move(other).submit(), Errc::invalid_argument, {"extended in another encoder"});
  dropped.reset();
  EXPECT_EQ(dense_keys(sequence), std::vector<float>(10, 1));
}

TEST_F(KvCacheValues, AStepThatWasTakenBackWritesNothingLater) {
  const Sequence sequence = cache.open_sequence().value();
  extend(sequence, 10, 1);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, 3).value();
  ASSERT_OK(std::move(encoder).submit());
  Encoder late = device.encoder();
  append(late, step, 0, 7);
  {
    Encoder now = device.encoder();
    expect_error(cache.truncate(now, sequence, 10), Errc::busy, {"appended in another encoder"});
  }
  {
    const Encoder dropped = std::move(late);
  }
  Encoder again = device.encoder();
  ASSERT_OK(cache.truncate(again, sequence, 10));
  ASSERT_OK(std::move(again).submit());
  extend(sequence, 3, 2);
  Encoder too_late = device.encoder();
  append(too_late, step, 0, 7);
  expect_error(too_late.status(), Errc::invalid_argument, {"the step is over"});
  EXPECT_EQ(dense_keys(sequence), (std::vector<float>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2}));
}

TEST_F(KvCacheValues, ASequenceThatComesBackIntoAStepLacksNoLayer) {
  const Sequence first = cache.open_sequence().value();
  const Sequence second = cache.open_sequence().value();
  for (const Sequence sequence : {first, second}) extend(sequence, 4, 1);
  Encoder encoder = device.encoder();
  const std::vector<KvExtension> extensions{{first, 2}, {second, 2}};
  KvStep step = cache.extend(encoder, extensions).value();
  ASSERT_OK(std::move(encoder).submit());
  std::optional<Encoder> dropped = device.encoder();
  ASSERT_OK(cache.truncate(*dropped, first, 4));
  {
    Encoder early = device.encoder();
    append(early, step, 0, 7);
    expect_error(early.status(), Errc::invalid_argument, {"taken back for a sequence in another encoder"});
  }
  dropped.reset();
  Encoder later = device.encoder();
  for (const std::uint32_t layer : {0U, 1U}) append(later, step, layer, 7);
  ASSERT_OK(std::move(later).submit());
  for (const Sequence sequence : {first, second})
    EXPECT_EQ(dense_keys(sequence), (std::vector<float>{1, 1, 1, 1, 7, 7}));
}

TEST_F(KvCacheValues, AStepsViewFollowsWhatSettlesItsSequences) {
  cache = make(
      {.groups = cache.spec().groups, .max_tokens = 1000, .max_sequences = 3, .layer_order = LayerOrder::together});
  const Sequence sequence = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, 200).value();
  for (const std::uint32_t layer : {0U, 1U}) append(encoder, step, layer, 1);
  EXPECT_EQ(step.view(0)->k.sequences.front()->sealed_pages, 0U);
  ASSERT_OK(cache.settle(encoder));
  EXPECT_EQ(step.view(0)->k.sequences.front()->sealed_pages, 2U);
  ASSERT_OK(std::move(encoder).submit());
  extend(cache.open_sequence().value(), 5, 3);
  EXPECT_EQ(*step.view(0)->k.sequences.front(), *cache.view({&sequence, 1}, 0)->k.sequences.front());
}

TEST_F(KvCacheValues, ABatchGoesOnWithoutSequencesThatWereClosedOrTakenBack) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(cache.open_sequence().value());
  for (const Sequence sequence : sequences) extend(sequence, 4, 1);
  Encoder encoder = device.encoder();
  const std::vector<KvExtension> extensions{{sequences[0], 1}, {sequences[1], 2}, {sequences[2], 3}};
  KvStep step = cache.extend(encoder, extensions).value();
  ASSERT_OK(std::move(encoder).submit());
  ASSERT_OK(cache.close(sequences[1]));

  const std::vector<float> numbers{5, 6, 6, 7, 8, 9};
  std::vector<float> vectors;
  for (const float number : numbers) vectors.insert(vectors.end(), 16, number);
  Buffer source = device.allocate(vectors.size() * 4).value();
  source.write(std::as_bytes(std::span(vectors))).value();
  const View x = View::token_major(source, DType::f32, {.tokens = 6, .heads = 1, .dim = 16});
  Encoder rest = device.encoder();
  for (const std::uint32_t layer : {0U, 1U}) step.append(rest, layer, x, x);
  ASSERT_OK(std::move(rest).submit());
  expect_error(step.view(0), Errc::invalid_argument, {"over for a sequence"});
  EXPECT_EQ(dense_keys(sequences[0]), (std::vector<float>{1, 1, 1, 1, 5}));
  EXPECT_EQ(dense_keys(sequences[2]), (std::vector<float>{1, 1, 1, 1, 7, 8, 9}));
  extend(sequences[2], 1, 2);
}

TEST_F(KvCacheCalls, OtherSequencesAreSettledOnTheWay) {
  KvGroup group = small_group();
  group.window = 100;
  KvCache cache = make({.groups = {group}, .max_tokens = 4000, .max_sequences = 2, .max_step_tokens = 600});
  const Sequence idle = sequence_of(cache, 600);
  const Sequence other = cache.open_sequence().value();
  ASSERT_OK(extend(cache, {{other, 1}}));
  const KvPages pages = *cache.view({&idle, 1}, 0)->k.sequences.front();
  EXPECT_EQ(pages.first_page, (600U - 64 - 100) / 64);
  EXPECT_EQ(pages.sealed_pages, (600U - 64) / 64);
  EXPECT_EQ(cache.counters().seals, 2 * (pages.sealed_pages - pages.first_page)) << "not what left";
}

TEST_F(KvCacheCalls, SealingAndTakingBackMoveNoMoreThanTheyMust) {
  KvGroup group = small_group();
  group.tail = 0;
  KvCache cache =
      make({.groups = {group}, .max_tokens = 2000, .max_step_tokens = 900, .layer_order = LayerOrder::together});
  const Sequence sequence = sequence_of(cache, 900);
  Encoder encoder = device.encoder();
  ASSERT_OK(cache.truncate(encoder, sequence, 100));
  ASSERT_OK(std::move(encoder).submit());
  EXPECT_EQ(cache.counters().seals, 2U * 2) << "of keys and of values the pages that stay";
  EXPECT_EQ(cache.counters().unseals, 2U);
  EXPECT_EQ(cache.counters().copied_bytes, 2U * 4 * 2 * 16 * 2) << "sinks: tokens, layers, dims, bytes";
}

TEST_F(KvCacheCalls, AWindowKeepsWhatATruncationInsideTheTailSees) {
  KvGroup group = small_group();
  group.window = 100;
  KvCache cache = make({.groups = {group}, .max_tokens = 2000, .max_step_tokens = 200});
  const Sequence sequence = sequence_of(cache, 900);
  ASSERT_OK(extend(cache, {{sequence, 1}}));
  const KvPages pages = *cache.view({&sequence, 1}, 0)->k.sequences.front();
  // By the definition: at 900 tokens, with 64 taken back, position 835 sees 736 and on, which page 11 begins before.
  EXPECT_EQ(pages.first_page, 11U);
  EXPECT_EQ(cache.first_position(sequence).value(), 704U);
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, sequence, 836));
  expect_error(cache.truncate(encoder, sequence, 803), Errc::invalid_argument,
               {"0, or at least 804", "before position 704"});
  EXPECT_OK(cache.truncate(encoder, sequence, 804));
  EXPECT_EQ(cache.first_position(sequence).value(), 704U);
  EXPECT_OK(cache.truncate(encoder, sequence, 0));
  EXPECT_EQ(*cache.view({&sequence, 1}, 0)->k.sequences.front(), KvPages{});
  EXPECT_EQ(cache.first_position(sequence).value(), 0U);
  expect_error(cache.first_position({}), Errc::invalid_argument, {"sequence"});
}

TEST_F(KvCacheCalls, ValuesOutOfRangeAreCountedWhereTheyAreLost) {
  std::vector<float> numbers(16, 0.5F);
  numbers[3] = 1e6F;  // beyond f16
  numbers[4] = NAN;
  numbers[5] = -INFINITY;
  Buffer source = device.allocate(64).value();
  source.write(std::as_bytes(std::span(numbers))).value();
  for (const DType dense : {DType::f16, DType::bf16, DType::f32}) {
    KvGroup group = small_group();
    group.dense = dense;
    group.v = dense;
    KvCache cache = make({.groups = {group}, .max_tokens = 300});
    const Sequence sequence = cache.open_sequence().value();
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 200).value();
    View x = values(200);
    x.buffer = source;
    for (const std::uint32_t layer : {0U, 1U}) step.append(encoder, layer, x, x);
    EXPECT_OK(cache.settle(encoder));
    ASSERT_OK(std::move(encoder).submit());
    const KvNonFinite lost = cache.non_finite().value();
    EXPECT_EQ(lost.appended, 200U * 2 * 2 * (dense == DType::f16 ? 3 : 2)) << info(dense).name;
    EXPECT_EQ(lost.sealed, 128U * 2 * 3) << "keys of two pages, two layers";
  }
}

}  // namespace
}  // namespace rota::test
