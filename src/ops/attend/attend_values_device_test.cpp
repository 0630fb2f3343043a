#include <array>
#include <set>

#include "harness/attend_on_device.h"
#include "harness/environment.h"

// The results of every shape, codec and layout, held against the definition.

namespace rota::test {
namespace {

constexpr std::array<std::uint32_t, 10> kDims{32, 48, 64, 80, 96, 128, 192, 256, 512, 576};
constexpr std::array<std::uint32_t, 6> kGroupSizes{1, 2, 3, 4, 8, 16};
constexpr std::array<std::uint64_t, 7> kKeyCounts{1, 31, 32, 33, 1023, 1025, 8191};
constexpr std::array<std::uint64_t, 5> kQueryTokenCounts{1, 2, 5, 17, 64};

const std::array<KvCodec, 9> kCodecs{DType::f32, turbo(2), DType::f16, turbo(3),   turbo(4),
                                     turbo(5),   turbo(6), turbo(8),   DType::bf16};

// Every codec on each side, and no pair twice.
KvCodec key_codec(std::size_t nth) { return kCodecs[nth % kCodecs.size()]; }
KvCodec value_codec(std::size_t nth) { return kCodecs[(4 * nth + 3) % kCodecs.size()]; }

// Indices of the lists above.
using Point = std::array<std::size_t, 4>;

std::vector<Point> all_points() {
  std::vector<Point> points;
  for (std::size_t dim = 0; dim < kDims.size(); ++dim) {
    for (std::size_t keys = 0; keys < kKeyCounts.size(); ++keys) {
      for (std::size_t group = 0; group < kGroupSizes.size(); ++group) {
        for (std::size_t tokens = 0; tokens < kQueryTokenCounts.size(); ++tokens)
          points.push_back({dim, keys, group, tokens});
      }
    }
  }
  return points;
}

// In milliseconds of a software driver: a pipeline is built for each head size and number of vectors.
double cost_of(const Point& point, const std::set<std::pair<std::size_t, std::uint64_t>>& built) {
  const std::uint64_t vectors = kGroupSizes[point[2]] * kQueryTokenCounts[point[3]];
  const double work = static_cast<double>(vectors * kKeyCounts[point[1]] * kDims[point[0]]);
  return 50 + (built.contains({point[0], std::bit_ceil(std::min<std::uint64_t>(vectors, 8))}) ? 0 : 2000) + work / 3e5;
}

// Points in which every two values of different lists meet, the cheapest first.
std::vector<Point> covering_points() {
  using Pair = std::array<std::size_t, 4>;  // two lists, a value of each
  const auto pairs_of = [](const Point& point) {
    std::vector<Pair> pairs;
    for (std::size_t a = 0; a < point.size(); ++a) {
      for (std::size_t b = a + 1; b < point.size(); ++b) pairs.push_back({a, b, point[a], point[b]});
    }
    return pairs;
  };
  const std::vector<Point> all = all_points();
  std::set<Pair> missing;
  for (const Point& point : all) {
    for (const Pair& pair : pairs_of(point)) missing.insert(pair);
  }
  std::vector<Point> chosen;
  std::set<std::pair<std::size_t, std::uint64_t>> built;
  while (!missing.empty()) {
    double least = std::numeric_limits<double>::infinity();
    Point best{};
    for (const Point& point : all) {
      const auto fresh =
          std::ranges::count_if(pairs_of(point), [&](const Pair& pair) { return missing.contains(pair); });
      const double cost = cost_of(point, built) / static_cast<double>(fresh);
      if (fresh == 0 || cost >= least) continue;
      least = cost;
      best = point;
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    built.insert(
        {best[0], std::bit_ceil(std::min<std::uint64_t>(kGroupSizes[best[2]] * kQueryTokenCounts[best[3]], 8))});
    chosen.push_back(best);
  }
  std::ranges::sort(chosen);
  return chosen;
}

class AttendValues : public AttendOnDevice {
 protected:
  // All where that is quick. The number of threads and of lanes is no part of the kernels: see AttendProperties.
  std::vector<Point> points_under_test() const {
    if (on_cpu() && !kSanitized && options_under_test().threads < 2) return all_points();
    std::vector<Point> points = covering_points();
    const DeviceInfo& info = device.info();
    const bool other_width = info.name.find("llvmpipe") != std::string::npos && info.limits.subgroup_size != 8;
    if (!other_width && !kSanitized) return points;
    std::vector<Point> fewer;
    for (std::size_t i = 0; i < points.size(); i += 16) fewer.push_back(points[i]);
    return fewer;
  }

  // All vectors of small calls; of others the first, the last, and some.
  std::vector<QueryVector> some_vectors(const Asked& asked, std::uint64_t vector_cost) {
    constexpr std::uint64_t kBudget = 1'000'000;
    std::vector<QueryVector> vectors = all_vectors(asked);
    const std::uint64_t wanted = std::max<std::uint64_t>(kBudget / vector_cost, 3);
    if (vectors.size() <= wanted) return vectors;
    std::swap(vectors[1], vectors.back());
    std::shuffle(vectors.begin() + 2, vectors.end(), random);
    vectors.resize(wanted);
    return vectors;
  }
};

TEST_F(AttendValues, EveryHeadSizeGroupKeyAndQueryTokenCount) {
  std::optional<std::size_t> dim_laid;
  std::optional<Stored> stored;
  std::optional<Definition> definition;
  const std::vector<Point> points = points_under_test();
  for (const auto& [dim, keys, group, tokens] : points) {
    if (!dim_laid || *dim_laid != dim) {
      Case what{.k = key_codec(dim), .v = value_codec(dim), .head_dim = kDims[dim], .value_dim = kDims[dim]};
      what.lengths.assign(kKeyCounts.begin(), kKeyCounts.end());
      what.query_tokens.assign(kKeyCounts.size(), 1);
      definition.reset();
      stored.reset();
      stored = store_sequences(what);
      definition.emplace(stored->kv);
      dim_laid = dim;
    }
    const KvView kv = one_of(stored->kv, keys);
    // More query tokens than keys cannot be causal.
    const Asked asked{.q = queries(kQueryTokenCounts[tokens], kGroupSizes[group], kDims[dim]),
                      .query_tokens = {kQueryTokenCounts[tokens]},
                      .mask = kQueryTokenCounts[tokens] > kKeyCounts[keys] ? Mask::none : Mask::causal};
    SCOPED_TRACE(fmt::format("{} and {} of {}, group {}, {} keys, {} query tokens", describe(key_codec(dim)),
                             describe(value_codec(dim)), kDims[dim], kGroupSizes[group], kKeyCounts[keys],
                             kQueryTokenCounts[tokens]));
    const Answer found = run(kv, asked);
    expect_defined(kv, asked, found, *definition, some_vectors(asked, kKeyCounts[keys] * kDims[dim]));
    if (HasFailure()) return;
  }
  RecordProperty("points", std::to_string(points.size()));
  RecordProperty("worst", std::to_string(worst_error));
}

TEST_F(AttendValues, EveryPairOfCodecs) {
  if (!on_cpu()) GTEST_SKIP() << "each is a pipeline; the head sizes have every codec of each side";
  for (const KvCodec& k : kCodecs) {
    for (const KvCodec& v : kCodecs) {
      expect_defined(
          {.k = k, .v = v, .head_dim = 48, .value_dim = 32, .group = 2, .lengths = {203}, .query_tokens = {3}});
    }
  }
}

TEST_F(AttendValues, KeysWithoutMeanAndOtherPagesSeedsAndTails) {
  Turbo plain = turbo(4);
  plain.key_mean = false;
  plain.seed = 77;
  expect_defined({.k = plain, .v = plain, .kv_heads = 2, .lengths = {300}, .page = 64, .tail = 100, .sinks = 0});
  expect_defined(
      {.k = turbo(4), .v = turbo(4), .lengths = {700}, .query_tokens = {3}, .page = 128, .tail = 0, .sinks = 128});
}

TEST_F(AttendValues, PagesOfAStep) {
  for (const KvCodec& v : {KvCodec(turbo(4)), KvCodec(DType::f16)}) {
    expect_defined({.k = turbo(4),
                    .v = v,
                    .kv_heads = 2,
                    .group = 2,
                    .lengths = {700, 65, 3},
                    .query_tokens = {70, 65, 1},
                    .tail = 200,
                    .step_pages = 2});
    expect_defined({.k = turbo(3),
                    .v = v,
                    .group = 1,
                    .lengths = {900},
                    .query_tokens = {300},
                    .window = 400,
                    .dense = DType::bf16,
                    .page = 128,
                    .tail = 300,
                    .step_pages = 9});
  }
}

TEST_F(AttendValues, HeadSizesOfKeysAndValuesThatDiffer) {
  for (const auto& [k_dim, v_dim] : {std::pair(192U, 128U), std::pair(576U, 512U)}) {
    expect_defined({.k = turbo(4),
                    .v = turbo(4),
                    .head_dim = k_dim,
                    .value_dim = v_dim,
                    .group = 2,
                    .lengths = {320},
                    .tail = 0,
                    .sinks = 0});
  }
}

TEST_F(AttendValues, EveryTypeOfQueriesAndResults) {
  const Case what{
      .k = turbo(4), .v = turbo(4), .kv_heads = 2, .group = 3, .lengths = {200, 40}, .query_tokens = {5, 2}};
  const Stored stored = store_sequences(what);
  for (const DTypeInfo& q : kDTypes) {
    for (const DTypeInfo& out : kDTypes) {
      SCOPED_TRACE(fmt::format("q of {}, out of {}", q.name, out.name));
      expect_defined(stored.kv, {.q = queries(what, q.dtype), .query_tokens = what.query_tokens, .out = out.dtype});
    }
  }
  expect_defined(stored.kv, {.q = queries(what), .query_tokens = what.query_tokens, .log_sum_exp = false});
}

TEST_F(AttendValues, QueriesAndResultsAnywhere) {
  const Case what{
      .k = turbo(4), .v = turbo(4), .kv_heads = 2, .group = 3, .lengths = {200, 40}, .query_tokens = {5, 2}};
  const Stored stored = store_sequences(what);
  const Numbers numbers = draw(what.tokens(), what.heads(), what.head_dim, gaussian());
  const Answer wanted = run(stored.kv, {.q = view_of(numbers), .query_tokens = what.query_tokens, .out = DType::f16});
  const Shape shape{what.tokens(), what.heads(), 64};
  for (const std::uint64_t dim_stride : {1U, 3U}) {
    const std::uint64_t head_stride = 64 * dim_stride * shape.tokens + 1;
    std::vector<std::byte> bytes((7 + shape.heads * head_stride) * 4, Guarded::kPoison);
    View q{.dtype = DType::f32,
           .shape = shape,
           .offset = 7,
           .token_stride = 64 * dim_stride,
           .head_stride = head_stride,
           .dim_stride = dim_stride};
    for (std::uint64_t i = 0; i < numbers.values.size(); ++i) {
      put(bytes, DType::f32,
          q.offset + i / 64 / shape.heads * q.token_stride + i / 64 % shape.heads * q.head_stride + i % 64 * dim_stride,
          numbers.values[i]);
    }
    q.buffer = upload(bytes);
    const Guarded out(device, shape.heads * head_stride, DType::f16, 97);
    const Guarded sums(device, 2 * shape.tokens * shape.heads, DType::f32, 31);
    const Asked asked{.q = q, .query_tokens = what.query_tokens, .out = DType::f16};
    Attend call = call_of(stored.kv, asked);
    call.out.buffer = out.buffer;
    call.out.offset = out.offset;
    call.out.token_stride = q.token_stride;
    call.out.head_stride = q.head_stride;
    call.out.dim_stride = dim_stride;
    call.log_sum_exp = MutView{.buffer = sums.buffer,
                               .dtype = DType::f32,
                               .shape = {shape.tokens, shape.heads, 1},
                               .offset = sums.offset,
                               .token_stride = 2,
                               .head_stride = 2 * shape.tokens};
    ASSERT_OK(run_on(device, [&](Encoder& encoder) { attend(encoder, call); }));
    EXPECT_TRUE(out.guards_intact() && sums.guards_intact());
    const auto found = out.read();
    const auto found_sums = sums.read();
    std::vector<std::byte> expected(found.size(), Guarded::kPoison);
    std::vector<std::byte> expected_sums(found_sums.size(), Guarded::kPoison);
    for (std::uint64_t vector = 0; vector < shape.tokens * shape.heads; ++vector) {
      const std::uint64_t at = vector / shape.heads * call.out.token_stride + vector % shape.heads * head_stride;
      for (std::uint64_t d = 0; d < 64; ++d) {
        save_bits(expected, DType::f16, at + d * dim_stride, load_bits(wanted.out, DType::f16, vector * 64 + d));
      }
      save_bits(expected_sums, DType::f32, 2 * (vector / shape.heads + vector % shape.heads * shape.tokens),
                load_bits(wanted.log_sum_exp, DType::f32, vector));
    }
    EXPECT_TRUE(found == expected) << dim_stride;
    EXPECT_TRUE(found_sums == expected_sums) << dim_stride;
  }
}

TEST_F(AttendValues, MemoryOfTheCallersOwnInAnyOrderPagedAndWrapped) {
  struct Kind {
    DType dtype;
    std::uint64_t k_dim, v_dim;
  };
  using Order = Slots::Order;
  for (const Kind& kind : {Kind{DType::f16, 37, 3}, Kind{DType::bf16, 64, 64}, Kind{DType::f32, 21, 43}}) {
    std::vector<Numbers> k;
    std::vector<Numbers> v;
    for (const std::uint64_t length : {250U, 3U, 90U}) {
      k.push_back(draw(length, 2, kind.k_dim, gaussian()));
      v.push_back(draw(length, 2, kind.v_dim, gaussian()));
    }
    for (const Order order : {Order::head_major, Order::token_major, Order::transposed, Order::padded}) {
      for (const bool ring : {false, true}) {
        Slots slots{.dtype = kind.dtype, .page_slots = ring ? 33U : 64U, .order = order};
        if (ring) slots.capacities = {100, 5, 90};
        SCOPED_TRACE(fmt::format("{} of {} and {}, order {}, ring {}", info(kind.dtype).name, kind.k_dim, kind.v_dim,
                                 static_cast<int>(order), ring));
        const KvView kv = lay_slots(slots, k, v);
        expect_defined(kv, {.q = queries(4, 2, kind.k_dim), .query_tokens = {2, 1, 1}});
        if (HasFailure()) return;
      }
    }
  }
}

// E|sum of p e|^2 = sum of p^2 |e|^2 for errors e of values that know nothing of each other, and for a query of any
// direction E(q e)^2 = |q|^2 |e|^2 / dim. The keys' sum has 1024 independent terms, and so deviates by 4 percent.
TEST_F(AttendValues, SealedValuesAndKeysErrAsTheoryHasIt) {
  constexpr std::uint64_t kSequences = 16;
  constexpr std::uint64_t kHeads = 16;
  // Of a normal variable: no code of so many bits errs less, and searching for the scale never errs more.
  const std::map<std::uint32_t, double> most{{2, 0.11748}, {3, 0.03456},  {4, 0.00952},
                                             {5, 0.00252}, {6, 0.000663}, {8, 0.0000883}};
  for (const auto& [bits, table_error] : most) {
    SCOPED_TRACE(fmt::format("{} bits", bits));
    Case what{.k = turbo(bits), .v = turbo(bits), .kv_heads = kHeads, .group = 1, .tail = 0, .sinks = 0};
    what.lengths.assign(kSequences, 64);
    what.query_tokens.assign(kSequences, 1);
    Stored stored = store_sequences(what);
    const Asked asked{.q = queries(what)};
    const Answer found = run(stored.kv, asked);
    KvView newest_key = stored.kv;
    newest_key.window = 1;
    const auto vectors = all_vectors(asked);
    const auto wanted = Definition(stored.kv).results(call_of(stored.kv, asked), vectors);
    ops::reference::StoredSide sealed_keys(stored.kv.k);
    ops::reference::StoredSide sealed_values(stored.kv.v);
    struct Sums {
      double error = 0, energy = 0, measured = 0, theory = 0;
    };
    Sums keys;
    Sums values;
    std::vector<double> newest_errors;  // of each sequence's last key
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      const auto& [sequence, head] = vectors[i];
      std::vector<double> key_mean(64);
      std::vector<double> output(64);
      for (std::uint64_t p = 0; p < 64; ++p) {
        for (std::uint64_t d = 0; d < 64; ++d) {
          key_mean[d] += static_cast<double>(stored.k[sequence].vector(p, head)[d]) / 64;
          output[d] += wanted[i].weights[p] * static_cast<double>(stored.v[sequence].vector(p, head)[d]);
        }
      }
      double key_error = 0;
      for (std::uint64_t p = 0; p < 64; ++p) {
        const double* const k = sealed_keys.vector(*stored.kv.k.sequences[sequence], p, head);
        const double* const v = sealed_values.vector(*stored.kv.v.sequences[sequence], p, head);
        double value_error = 0;
        key_error = 0;
        for (std::uint64_t d = 0; d < 64; ++d) {
          const auto key = static_cast<double>(stored.k[sequence].vector(p, head)[d]);
          const auto value = static_cast<double>(stored.v[sequence].vector(p, head)[d]);
          key_error += std::pow(k[d] - key, 2);
          value_error += std::pow(v[d] - value, 2);
          keys.energy += std::pow(key - key_mean[d], 2);
          values.energy += value * value;
        }
        keys.error += key_error;
        values.error += value_error;
        values.theory += std::pow(wanted[i].weights[p], 2) * value_error;
      }
      for (std::uint64_t d = 0; d < 64; ++d) values.measured += std::pow(found.at(vectors[i], d) - output[d], 2);
      newest_errors.push_back(key_error);
    }
    // Of one key, log_sum_exp is its logit.
    for (int turn = 0; turn < 4; ++turn) {
      const Asked next{.q = queries(what)};
      const Answer logits = run(newest_key, next);
      const auto q = ops::reference::contents_of(next.q.buffer);
      for (std::size_t i = 0; i < vectors.size(); ++i) {
        const auto& [sequence, head] = vectors[i];
        double logit = 0;
        double squares = 0;
        for (std::uint64_t d = 0; d < 64; ++d) {
          const double number = ops::reference::number_at(q, next.q, sequence, head, d) / 8;
          logit += number * static_cast<double>(stored.k[sequence].vector(63, head)[d]);
          squares += number * number;
        }
        keys.measured += std::pow(logits.log_sum_exp_at(vectors[i]) - logit, 2);
        keys.theory += squares * newest_errors[i] / 64;
      }
    }
    for (const Sums& side : {keys, values}) {
      EXPECT_GT(side.error / side.energy, std::pow(4, -static_cast<double>(bits)));
      EXPECT_LT(side.error / side.energy, table_error);
      EXPECT_NEAR(side.measured / side.theory, 1, 0.2);
    }
  }
}

TEST_F(AttendValues, TheReferenceRotatesAsItsDocumentSays) {
  for (const std::uint32_t dim : kDims) {
    std::vector<double> values(dim);
    for (double& value : values) value = gaussian()(random, 0);
    std::vector<double> rotated = values;
    ops::reference::rotate(rotated);
    for (std::size_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < dim; ++j) sum += ops::reference::rotation_at(dim, i, j) * values[j];
      EXPECT_NEAR(rotated[i], sum, 1e-12 * dim);
    }
  }
}

}  // namespace
}  // namespace rota::test
