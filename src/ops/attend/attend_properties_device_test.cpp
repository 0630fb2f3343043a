#include <rapidcheck.h>

#include <array>

#include "harness/attend_on_device.h"

// What must not change a bit, and what results have to do with each other.

namespace rota::test {
namespace {

std::uint64_t drawn(std::uint64_t least, std::uint64_t most) {
  return *rc::gen::inRange<std::uint64_t>(least, most + 1);
}

class AttendProperties : public AttendOnDevice {
 protected:
  void seed_from_case() { random.seed(*rc::gen::arbitrary<std::uint64_t>()); }  // so that a failure can be replayed
};

TEST_F(AttendProperties, NeitherPhysicalPagesNorTheBatchChangeABit) {
  EXPECT_TRUE(rc::check("physical pages and batch", [this] {
    seed_from_case();
    const bool sealed = *rc::gen::arbitrary<bool>();
    Case what{.kv_heads = 2, .group = 4, .lengths = {}, .query_tokens = {}};
    if (sealed) what.k = what.v = turbo(4);
    if (*rc::gen::arbitrary<bool>()) what.window = drawn(1, 300);
    what.keep_sinks = what.window && *rc::gen::arbitrary<bool>();
    for (std::uint64_t sequences = drawn(1, 4); sequences > 0; --sequences) {
      what.lengths.push_back(drawn(1, *rc::gen::element<std::uint64_t>(5, 700)));
      what.query_tokens.push_back(drawn(1, std::min<std::uint64_t>(what.lengths.back(), 5)));
    }
    const Stored stored = store_sequences(what);
    const Asked asked{.q = queries(what),
                      .query_tokens = what.query_tokens,
                      .arithmetic = *rc::gen::element(Arithmetic::stored, Arithmetic::f32)};
    const Answer together = run(stored.kv, asked);

    std::vector<std::size_t> order(what.lengths.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    Case other = what;
    other.lengths.clear();
    other.query_tokens.clear();
    Stored moved;
    for (const std::size_t i : order) {
      other.lengths.push_back(what.lengths[i]);
      other.query_tokens.push_back(what.query_tokens[i]);
      moved.k.push_back(stored.k[i]);
      moved.v.push_back(stored.v[i]);
    }
    moved.kv = lay_out(other, moved.k, moved.v);
    for (std::size_t nth = 0; nth < order.size(); ++nth) {
      const std::uint64_t first =
          std::accumulate(what.query_tokens.begin(),
                          what.query_tokens.begin() + static_cast<std::ptrdiff_t>(order[nth]), std::uint64_t{0});
      const Asked alone = part_of(asked, first, {what.query_tokens[order[nth]]});
      RC_ASSERT(run(one_of(moved.kv, nth), alone) == together.part(first, what.query_tokens[order[nth]]));
    }
    // The two halves of the batch, in their new order, some sequences twice.
    std::vector<std::size_t> twice(order.size());
    std::iota(twice.begin(), twice.end(), 0U);
    twice.push_back(twice[0]);
    std::vector<float> q_values;
    std::vector<std::uint64_t> query_tokens;
    Answer wanted;
    const auto q = ops::reference::contents_of(asked.q.buffer);
    for (const std::size_t nth : twice) {
      const std::uint64_t first =
          std::accumulate(what.query_tokens.begin(),
                          what.query_tokens.begin() + static_cast<std::ptrdiff_t>(order[nth]), std::uint64_t{0});
      for (std::uint64_t i = first * 8 * 64; i < (first + other.query_tokens[nth]) * 8 * 64; ++i) {
        q_values.push_back(static_cast<float>(ops::reference::number_at(q, DType::f32, i)));
      }
      query_tokens.push_back(other.query_tokens[nth]);
      const Answer part = together.part(first, other.query_tokens[nth]);
      wanted.out.insert(wanted.out.end(), part.out.begin(), part.out.end());
      wanted.log_sum_exp.insert(wanted.log_sum_exp.end(), part.log_sum_exp.begin(), part.log_sum_exp.end());
    }
    const Asked again{.q = view_of({8, 64, q_values}), .query_tokens = query_tokens, .arithmetic = asked.arithmetic};
    RC_ASSERT(run(some_of(moved.kv, twice), again) == wanted);
  }));
}

TEST_F(AttendProperties, WhereARingStartsChangesNoBit) {
  EXPECT_TRUE(rc::check("rings", [this] {
    seed_from_case();
    const std::uint64_t length = drawn(1, 900);
    const std::uint64_t query_tokens = drawn(1, std::min<std::uint64_t>(length, 4));
    const std::uint64_t window = drawn(1, length + 5);
    const std::vector<Numbers> k{draw(length, 2, 64, gaussian())};
    const std::vector<Numbers> v{draw(length, 2, 64, gaussian())};
    const Asked asked{.q = queries(query_tokens, 8, 64), .query_tokens = {query_tokens}};
    KvView whole = lay_slots({}, k, v);
    whole.window = window;
    const std::uint64_t least = std::min(window + query_tokens - 1, length);
    KvView ring = lay_slots({.page_slots = drawn(1, 200), .capacities = {drawn(least, length + 50)}}, k, v);
    ring.window = window;
    RC_ASSERT(run(ring, asked) == run(whole, asked));

    // The same keys after many others that the ring has lost. Keys are added up in ranges that end at multiples of 512,
    // or of 2,048 on a CPU.
    const std::uint64_t lost = 2048 * drawn(1, 3);
    const auto later = [&](const Numbers& numbers) {
      Numbers shifted{numbers.heads, numbers.dim, std::vector<float>(lost * numbers.heads * numbers.dim)};
      shifted.values.insert(shifted.values.end(), numbers.values.begin(), numbers.values.end());
      return std::vector{shifted};
    };
    KvView full = lay_slots({.capacities = {length}}, later(k[0]), later(v[0]));
    full.window = window;
    if (window >= length) full.window.reset();  // the ring is one
    if (window < length && window + query_tokens > length + 1)
      return;  // the first query token would see what the ring has lost
    RC_ASSERT(run(full, asked) == run(whole, asked));
  }));
}

TEST_F(AttendProperties, HowRowsLieInMemoryChangesNoBitOnAGpu) {
  if (on_cpu()) GTEST_SKIP();  // where rows that are not side by side are added up in another order
  for (const std::uint64_t dim : {64U, 40U, 36U}) {
    const std::vector<Numbers> k{draw(300, 2, dim, gaussian())};
    const std::vector<Numbers> v{draw(300, 2, dim, gaussian())};
    const Asked asked{.q = queries(2, 4, dim), .query_tokens = {2}};
    const Answer wanted = run(lay_slots({}, k, v), asked);
    using enum Slots::Order;
    for (const Slots::Order order : {token_major, transposed, padded}) {
      EXPECT_TRUE(run(lay_slots({.order = order}, k, v), asked) == wanted) << dim << ", " << static_cast<int>(order);
    }
  }
}

TEST_F(AttendProperties, InPartsOrAtOnceIsTheSameBits) {
  EXPECT_TRUE(rc::check("chunks", [this] {
    seed_from_case();
    Case what{.group = *rc::gen::element(1U, 2U, 8U),
              .lengths = {drawn(1, *rc::gen::element<std::uint64_t>(40, 1300))}};
    // Sealed pages, too, as long as no part ends before they do.
    if (*rc::gen::arbitrary<bool>()) what.k = what.v = turbo(*rc::gen::element(3U, 4U, 8U));
    const std::uint64_t length = what.lengths[0];
    const std::uint64_t query_tokens = drawn(1, std::min<std::uint64_t>(length, 40));
    what.query_tokens = {query_tokens};
    if (*rc::gen::arbitrary<bool>()) what.window = drawn(1, length);
    const Stored stored = store_sequences(what);
    const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Answer at_once = run(stored.kv, asked);
    for (std::uint64_t done = 0; done < query_tokens;) {
      const std::uint64_t next =
          drawn(1, std::min<std::uint64_t>(query_tokens - done, *rc::gen::element<std::uint64_t>(1, 7, 40)));
      KvView shorter = stored.kv;
      shorter.lengths = {length - query_tokens + done + next};
      RC_ASSERT(run(shorter, part_of(asked, done, {next})) == at_once.part(done, next));
      done += next;
    }
  }));
}

TEST_F(AttendProperties, TheNumberOfThreadsChangesNoBit) {
  if (!on_cpu()) GTEST_SKIP();
  for (const bool sealed : {false, true}) {
    Case what{.head_dim = 80,
              .value_dim = 48,
              .kv_heads = 3,
              .group = 5,
              .lengths = {9000, 3, 700},
              .query_tokens = {7, 1, 30}};
    if (sealed) {
      what.k = turbo(3);
      what.v = turbo(5);
    }
    std::optional<Answer> wanted;
    for (const std::uint32_t threads : {1U, 2U, 3U, 7U, 16U}) {
      device = Device::open({.threads = threads}).value();
      random.seed(5);
      const Stored stored = store_sequences(what);
      const Answer found =
          run(stored.kv, {.q = queries(what), .query_tokens = what.query_tokens, .arithmetic = Arithmetic::stored});
      if (!wanted) wanted = found;
      EXPECT_TRUE(found == *wanted) << threads << " threads";
    }
  }
}

// Off by no more than their parts: weights e^(sum of one - sum of both) by the tolerances of both sums, outputs by
// theirs.
TEST_F(AttendProperties, TwoHalvesMergeIntoTheWhole) {
  for (const bool sealed : {false, true}) {
    Case what{.lengths = {700}, .query_tokens = {3}};
    if (sealed) what.k = what.v = turbo(4);
    const Stored whole = store_sequences(what);
    const Asked asked{.q = queries(what), .query_tokens = what.query_tokens, .mask = Mask::none};
    const Answer wanted = run(whole.kv, asked);
    for (const std::uint64_t cut : {64U, 320U, 576U}) {
      // Pages are the same ones, so that nothing is sealed otherwise. Keys of the second half lose their positions.
      KvView first = whole.kv;
      first.lengths = {cut};
      KvView second = whole.kv;
      second.lengths = {700 - cut};
      for (auto [side, front, back] :
           {std::tuple(&whole.kv.k, &first.k, &second.k), std::tuple(&whole.kv.v, &first.v, &second.v)}) {
        KvPages pages = *side->sequences[0];
        KvPages rest = pages;
        rest.page_table.erase(rest.page_table.begin(), rest.page_table.begin() + static_cast<std::ptrdiff_t>(cut / 64));
        rest.sealed_pages -= std::min<std::uint64_t>(rest.sealed_pages, cut / 64);
        rest.sinks.reset();
        pages.sealed_pages = std::min<std::uint64_t>(pages.sealed_pages, cut / 64);
        front->sequences.edit()[0] = std::make_shared<KvPages>(pages);
        back->sequences.edit()[0] = std::make_shared<KvPages>(rest);
      }
      const Answer merged = merge_answers(run(first, asked), run(second, asked));
      for (const QueryVector& vector : all_vectors(asked)) {
        const double sum = wanted.log_sum_exp_at(vector);
        EXPECT_NEAR(merged.log_sum_exp_at(vector), sum, 2 * kTolerance * (1 + std::abs(sum)));
        double error = 0;
        double size = 0;
        for (std::uint64_t d = 0; d < 64; ++d) {
          error += std::pow(merged.at(vector, d) - wanted.at(vector, d), 2);
          size += std::pow(wanted.at(vector, d), 2);
        }
        // Three results within kTolerance each, of values that are not much longer than their mean.
        EXPECT_LE(std::sqrt(error), 10 * kTolerance * std::sqrt(size));
      }
    }
  }
}

// The sum of keys of zeros counts them.
TEST_F(AttendProperties, AWindowIsExactlySoManyKeys) {
  const Draw zero = [](std::mt19937_64&, std::uint64_t) { return 0.0; };
  for (const bool sealed : {false, true}) {
    for (const std::uint64_t window : {1U, 2U, 63U, 64U, 65U, 255U, 256U, 257U, 600U}) {
      Case what{.group = 1, .lengths = {600, 70}, .query_tokens = {70, 70}, .window = window, .k_draw = zero};
      if (sealed) what.k = what.v = turbo(4);
      const Stored stored = store_sequences(what);
      const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
      const Answer found = expect_defined(stored.kv, asked);
      for (const QueryVector& vector : all_vectors(asked)) {
        const std::uint64_t before = vector.token < 70 ? 530 + vector.token + 1 : vector.token - 69;
        EXPECT_NEAR(found.log_sum_exp_at(vector), std::log(static_cast<double>(std::min(before, window))), kTolerance)
            << window << ", token " << vector.token;
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(AttendProperties, WithoutAMaskEveryQueryTokenSeesAllKeys) {
  for (const bool sealed : {false, true}) {
    Case what{.group = 4, .lengths = {300, 5}, .query_tokens = {9, 9}};
    if (sealed) what.k = what.v = turbo(4);
    const Stored stored = store_sequences(what);
    Numbers same = draw(1, 4, 64, gaussian());
    Numbers q{4, 64, {}};
    for (int i = 0; i < 18; ++i) q.values.insert(q.values.end(), same.values.begin(), same.values.end());
    const Asked asked{.q = view_of(q), .query_tokens = what.query_tokens, .mask = Mask::none};
    const Answer found = expect_defined(stored.kv, asked);
    for (std::uint64_t token = 0; token < 18; ++token) {
      EXPECT_TRUE(found.part(token, 1) == found.part(token / 9 * 9, 1)) << token;
    }
  }
}

}  // namespace
}  // namespace rota::test
