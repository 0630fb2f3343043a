#include "distort/tile_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "distort/captures.h"
#include "distort/meter.h"
#include "distort/sample.h"

// Tiles against plain loops in f64, written from the definition; samples against all queries.

namespace {

using namespace rota::tool;
using rota::DType;
using rota::turbo;

std::vector<float> random_numbers(std::uint64_t count, std::uint32_t seed, float spread = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(engine);
  return numbers;
}

double dot(std::span<const float> one, std::span<const float> other) {
  double sum = 0;
  for (std::size_t at = 0; at < one.size(); ++at) sum += static_cast<double>(one[at]) * static_cast<double>(other[at]);
  return sum;
}

// Keys and values of one way, [token][dim].
struct Kept {
  std::vector<float> keys, values;
};

struct Reference {
  Setting setting;
  Kept exact;

  std::span<const float> row(const std::vector<float>& of, std::uint64_t token) const {
    return std::span(of).subspan(token * setting.dim, setting.dim);
  }
  bool is_sealed(std::uint64_t token, std::uint64_t position, std::uint32_t page) const {
    const std::uint64_t older = position + 1 < setting.tail ? 0 : position + 1 - setting.tail;
    return token >= setting.sinks && token < older / page * page;
  }
  // Logits of all keys up to the query's position; those of `sealed` where it has them.
  std::vector<double> logits(const Query& query, const Kept* sealed, std::uint32_t page) const {
    std::vector<double> found;
    for (std::uint64_t token = 0; token <= query.position; ++token) {
      const bool from_sealed = sealed != nullptr && is_sealed(token, query.position, page);
      found.push_back(setting.scale * dot(query.numbers, row(from_sealed ? sealed->keys : exact.keys, token)));
    }
    return found;
  }
  static std::vector<double> softmax(std::vector<double> logits) {
    double sum = 0;
    for (double& logit : logits) sum += logit = std::exp(logit);
    for (double& logit : logits) logit /= sum;
    return logits;
  }
  std::vector<double> output(const std::vector<double>& weights, const Kept* sealed, std::uint32_t page) const {
    std::vector<double> sum(setting.dim);
    for (std::uint64_t token = 0; token < weights.size(); ++token) {
      const bool from_sealed = sealed != nullptr && is_sealed(token, weights.size() - 1, page);
      const auto value = row(from_sealed ? sealed->values : exact.values, token);
      for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += weights[token] * static_cast<double>(value[at]);
    }
    return sum;
  }
};

double centred(const std::vector<double>& numbers) {
  double mean = 0, square = 0;
  for (const double number : numbers) mean += number / static_cast<double>(numbers.size());
  for (const double number : numbers) square += (number - mean) * (number - mean);
  return square;
}

HeadNumbers numbers_of(const Kept& kept, std::uint64_t dim) { return {tiled_keys(kept.keys, dim), kept.values}; }

TEST(TileMeter, MeasuresWhatTheDefinitionSays) {
  // Neither a multiple of a tile nor of a page.
  const Setting setting{.tokens = 811, .dim = 32, .scale = 0.3, .tail = 50, .sinks = 5, .sample = 0};
  const std::uint64_t size = setting.tokens * setting.dim;
  const Reference reference{setting, {random_numbers(size, 1), random_numbers(size, 2)}};
  const std::vector<Kept> ways{{random_numbers(size, 3), random_numbers(size, 4)},
                               {random_numbers(size, 5), random_numbers(size, 6)}};
  const std::vector<Trial> trials{{"one", turbo(4), 128, {0, 1}}, {"other", turbo(3), 64, {1}}};
  const std::vector<float> numbers = random_numbers(size, 7);
  std::vector<Query> queries;
  for (const std::uint64_t position : {0U, 40U, 200U, 256U, 300U, 500U, 640U, 641U, 700U, 790U, 810U}) {
    queries.push_back({std::span(numbers).subspan(position * setting.dim, setting.dim), position});
  }
  std::vector<QueryRecord> records(queries.size(), QueryRecord{0, {{0, 0, 0, {0, 0}}, {0, 0, 0, {0}}}});
  const std::vector<HeadNumbers> restored{numbers_of(ways[0], setting.dim), numbers_of(ways[1], setting.dim)};
  TileMeter(setting, trials).measure(numbers_of(reference.exact, setting.dim), restored, queries, records);
  for (std::size_t at = 0; at < queries.size(); ++at) {
    const std::uint64_t position = queries[at].position;
    SCOPED_TRACE(position);
    const auto logits = reference.logits(queries[at], nullptr, 1);
    const auto weights = Reference::softmax(logits);
    const auto output = reference.output(weights, nullptr, 1);
    double square = 0;
    for (const double number : output) square += number * number;
    EXPECT_NEAR(records[at].output_square, square, 1e-12 * square);
    for (std::size_t trial = 0; trial < trials.size(); ++trial) {
      const std::uint32_t page = trials[trial].page;
      const TrialRecord& record = records[at].trials[trial];
      const auto kept_logits = reference.logits(queries[at], &ways[trial], page);
      const auto kept_weights = Reference::softmax(kept_logits);
      std::vector<double> errors, sealed;
      double divergence = 0;
      for (std::uint64_t token = 0; token <= position; ++token) {
        divergence += weights[token] * std::log(weights[token] / kept_weights[token]);
        if (!reference.is_sealed(token, position, page)) continue;
        errors.push_back(kept_logits[token] - logits[token]);
        sealed.push_back(logits[token]);
      }
      EXPECT_NEAR(record.logit_error, centred(errors), 1e-10 * centred(errors));
      EXPECT_NEAR(record.logit_square, centred(sealed), 1e-10 * centred(sealed));
      EXPECT_NEAR(record.divergence, divergence, 1e-12);
      for (std::size_t partner = 0; partner < trials[trial].partners.size(); ++partner) {
        const auto kept_output = reference.output(kept_weights, &ways[trials[trial].partners[partner]], page);
        double error = 0;
        for (std::size_t part = 0; part < output.size(); ++part) error += std::pow(kept_output[part] - output[part], 2);
        EXPECT_NEAR(record.output_error[partner], error, 1e-12);
      }
    }
  }
}

TEST(Sample, TakesOnePositionOfEachStratum) {
  const auto some = sampled_positions(256, 4096, 50, 3);
  ASSERT_EQ(some.size(), 50U);
  double weight = 0;
  for (std::uint64_t at = 0; at < some.size(); ++at) {
    EXPECT_GE(some[at].position, 256 + at * 3840 / 50);
    EXPECT_LT(some[at].position, 256 + (at + 1) * 3840 / 50);
    weight += some[at].weight;
  }
  EXPECT_EQ(weight, 3840);
  for (const std::uint64_t count : {0U, 3840U, 5000U}) {
    const auto all = sampled_positions(256, 4096, count, 3);
    ASSERT_EQ(all.size(), 3840U);
    for (std::uint64_t at = 0; at < all.size(); ++at) {
      EXPECT_EQ(all[at].position, 256 + at);
      EXPECT_EQ(all[at].weight, 1);
    }
  }
  EXPECT_NE(sampled_positions(256, 4096, 50, 4)[7].position, some[7].position);
}

// Terms of all queries of some heads: parts grow with position, as errors do with keys that are sealed, beat with the
// pages, and a few queries have most.
struct Population {
  std::vector<std::vector<RatioSums::Term>> heads;

  explicit Population(std::uint32_t seed) : heads(4) {
    std::mt19937 engine(seed);
    std::lognormal_distribution<double> whole(0, 0.5), part(0, 1);
    for (auto& head : heads) {
      for (std::uint64_t at = 0; at < 3840; ++at) {
        const double w = whole(engine);
        head.push_back({w * part(engine) * (1 + static_cast<double>(at) / 1000 + (at % 128 < 30 ? 2 : 0)), w});
      }
    }
  }
};

TEST(Sample, IntervalsHoldWhatAllQueriesGive) {
  int held = 0, held_root = 0, tries = 0;
  double widths = 0;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Population population(seed);
    RatioSums all;
    for (const auto& head : population.heads) all.add(head);
    EXPECT_EQ(all.half_interval(0), 0);
    for (std::uint64_t draw = 0; draw < 40; ++draw) {
      RatioSums sums;
      for (std::size_t head = 0; head < population.heads.size(); ++head) {
        std::vector<RatioSums::Term> terms;
        for (const Sampled& one : sampled_positions(0, 3840, 64 + draw % 2, draw * 100 + head)) {
          const RatioSums::Term& term = population.heads[head][one.position];
          terms.push_back({one.weight * term.part, one.weight * term.whole});
        }
        sums.add(terms);
      }
      const double half = sums.half_interval(1 - 64.0 / 3840);
      widths += half / all.value();
      held += std::abs(sums.value() - all.value()) <= half ? 1 : 0;
      held_root +=
          std::abs(std::sqrt(sums.value()) - std::sqrt(all.value())) <= sums.half_interval_of_root(0.98) ? 1 : 0;
      ++tries;
    }
  }
  // 95 % of 400 are 380, and its deviation is 4.4.
  EXPECT_GE(held, 0.92 * tries);
  EXPECT_LE(held, 0.99 * tries) << "wider than they need be";
  EXPECT_GE(held_root, 0.92 * tries);
  EXPECT_LT(widths / tries, 0.3);
}

std::vector<Capture> random_captures(std::uint64_t heads, std::uint64_t tokens, std::uint64_t dim) {
  std::vector<Capture> captures;
  for (std::uint32_t head = 0; head < heads; ++head) {
    captures.push_back({.head = {.name = std::to_string(head)},
                        .key_name = "k",
                        .value_name = "v",
                        .keys = random_numbers(tokens * dim, 10 * head + 1, 2),
                        .values = random_numbers(tokens * dim, 10 * head + 2),
                        .queries = random_numbers(2 * tokens * dim, 10 * head + 3)});
  }
  return captures;
}

std::vector<double> results(std::uint32_t threads, std::uint64_t sample, std::size_t heads_at_once) {
  const Setting setting{.tokens = 700, .dim = 16, .scale = 0.25, .tail = 128, .sinks = 4, .sample = sample};
  DistortMeter meter(setting, {{"turbo4", turbo(4), 128, {0, 1}}, {"turbo2", turbo(2), 128, {0, 1}}}, threads);
  auto device = rota::Device::open({.threads = threads}).value();
  const auto captures = random_captures(3, setting.tokens, setting.dim);
  for (std::size_t at = 0; at < captures.size(); at += heads_at_once) {
    const std::size_t count = std::min(heads_at_once, captures.size() - at);
    double last = 0;
    meter.add(device, std::span(captures).subspan(at, count), [&](double share) {
      EXPECT_GE(share, last);
      EXPECT_LE(last = share, 1);
    });
  }
  const Measure all = sum_of(meter.heads(), meter.trials());
  std::vector<double> found;
  for (const TrialSums& sums : all.trials) {
    for (const double number :
         {sums.keys.error, sums.values.error, sums.keys.coded_square, sums.logits.value(), sums.divergence.value(),
          sums.outputs[0].value(), sums.outputs[1].value(), sums.logits.half_interval_of_root(setting.unseen_share()),
          sums.divergence.half_interval(setting.unseen_share()),
          sums.outputs[1].half_interval_of_root(setting.unseen_share())}) {
      found.push_back(number);
    }
  }
  return found;
}

TEST(DistortMeter, SumsDependNeitherOnThreadsNorOnWhatIsMeasuredTogether) {
  for (const std::uint64_t sample : {0U, 21U}) {
    const auto one = results(1, sample, 3);
    EXPECT_EQ(one, results(2, sample, 3));
    EXPECT_EQ(one, results(5, sample, 1));
  }
}

// All queries of a recorded head, as one codec leaves them.
std::vector<std::vector<QueryRecord>> all_records(rota::Device& device, const Setting& setting, const Trial& trial,
                                                  const Capture& capture) {
  std::vector<Restored> kept = restore(device, setting, trial, std::span(&capture, 1));
  const std::vector<HeadNumbers> restored{numbers_of({kept[0].keys, kept[0].values}, setting.dim)};
  const HeadNumbers exact = numbers_of({capture.keys, capture.values}, setting.dim);
  TileMeter meter(setting, std::span(&trial, 1));
  std::vector<std::vector<QueryRecord>> heads;
  for (std::uint64_t head = 0; head < capture.queries.size() / setting.tokens / setting.dim; ++head) {
    std::vector<Query> queries;
    for (std::uint64_t position = kFirstQuery; position < setting.tokens; ++position) {
      const std::uint64_t row = (head * setting.tokens + position) * setting.dim;
      queries.push_back({std::span(capture.queries).subspan(row, setting.dim), position});
    }
    std::vector<QueryRecord> records(queries.size(), QueryRecord{0, {{0, 0, 0, {0}}}});
    for (std::size_t at = 0; at < queries.size(); at += kQueriesAtOnce) {
      meter.measure(exact, restored, std::span(queries).subspan(at, kQueriesAtOnce),
                    std::span(records).subspan(at, kQueriesAtOnce));
    }
    heads.push_back(std::move(records));
  }
  return heads;
}

// Of a real model, where all queries can be computed: how often a sample's interval holds what all of them give.
TEST(Sample, IntervalsHoldOnRecordedQueries) {
  const Source source = open_source(ROTA_SOURCE_FOLDER "/tests/captures");
  const Setting setting{
      .tokens = source.tokens, .dim = source.dim, .scale = source.softmax_scale, .tail = 128, .sinks = 4, .sample = 32};
  const Trial trial{"turbo4", turbo(4), 128, {0}};
  auto device = rota::Device::open({}).value();
  std::vector<std::vector<QueryRecord>> heads;
  CaptureReader reader(source);
  while (const auto capture = reader.next()) {
    for (auto& records : all_records(device, setting, trial, *capture)) heads.push_back(std::move(records));
  }
  using Term = RatioSums::Term;
  const auto held = [&](auto term_of, std::size_t first, std::size_t count) {
    RatioSums all;
    for (std::size_t head = first; head < first + count; ++head) {
      std::vector<Term> terms;
      for (const QueryRecord& record : heads[head]) terms.push_back(term_of(record));
      all.add(terms);
    }
    int inside = 0;
    constexpr std::uint64_t kDraws = 400;
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      RatioSums sums;
      for (std::size_t head = first; head < first + count; ++head) {
        std::vector<Term> terms;
        for (const Sampled& one : sampled_positions(0, heads[head].size(), setting.sample, draw * 1000 + head)) {
          const Term term = term_of(heads[head][one.position]);
          terms.push_back({one.weight * term.part, one.weight * term.whole});
        }
        sums.add(terms);
      }
      const double half = sums.half_interval_of_root(setting.unseen_share());
      inside += std::abs(std::sqrt(sums.value()) - std::sqrt(all.value())) <= half ? 1 : 0;
    }
    return static_cast<double>(inside) / static_cast<double>(kDraws);
  };
  const auto logits = [](const QueryRecord& r) { return Term{r.trials[0].logit_error, r.trials[0].logit_square}; };
  const auto divergence = [](const QueryRecord& r) { return Term{r.trials[0].divergence, 1}; };
  const auto outputs = [](const QueryRecord& r) { return Term{r.trials[0].output_error[0], r.output_square}; };
  const auto expect = [&](const std::string& what, auto term_of) {
    SCOPED_TRACE(what);
    EXPECT_GE(held(term_of, 0, heads.size()), 0.92);
    // Of one head a few queries may have most of the error, and a sample of 32 may miss them.
    double sum = 0, least = 1;
    for (std::size_t head = 0; head < heads.size(); ++head) {
      const double share = held(term_of, head, 1);
      sum += share;
      least = std::min(least, share);
    }
    EXPECT_GE(sum / static_cast<double>(heads.size()), 0.92);
    EXPECT_GE(least, 0.78);
  };
  expect("logits", logits);
  expect("divergence", divergence);
  expect("outputs", outputs);
}

}  // namespace
