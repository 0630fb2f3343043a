#include "distort/meter.h"

#include <algorithm>
#include <utility>

#include "distort/tiles.h"
#include "distort/workers.h"
#include "rota/view.h"

namespace rota::tool {
namespace {

constexpr std::uint64_t kMostQueryHeads = 65536;  // of one KV head, to tell samples of different heads apart

Measure empty_measure(std::span<const Trial> trials) {
  Measure measure;
  for (const Trial& trial : trials) {
    measure.trials.emplace_back();
    measure.trials.back().outputs.resize(trial.partners.size());
  }
  return measure;
}

QueryRecord empty_record(std::span<const Trial> trials) {
  QueryRecord record;
  for (const Trial& trial : trials) {
    record.trials.emplace_back();
    record.trials.back().output_error.resize(trial.partners.size());
  }
  return record;
}

}  // namespace

Measure& Measure::operator+=(const Measure& other) {
  queries += other.queries;
  for (std::size_t index = 0; index < trials.size(); ++index) {
    TrialSums& sums = trials[index];
    const TrialSums& more = other.trials[index];
    sums.keys += more.keys;
    sums.values += more.values;
    sums.logits += more.logits;
    sums.divergence += more.divergence;
    for (std::size_t at = 0; at < sums.outputs.size(); ++at) sums.outputs[at] += more.outputs[at];
  }
  return *this;
}

Measure sum_of(std::span<const HeadMeasure> heads, std::span<const Trial> trials) {
  Measure sum = empty_measure(trials);
  for (const HeadMeasure& head : heads) sum += head.measure;
  return sum;
}

DistortMeter::DistortMeter(const Setting& setting, std::vector<Trial> trials, std::uint32_t threads)
    : setting_(setting), trials_(std::move(trials)), threads_(std::max(threads, 1U)) {}

std::uint64_t DistortMeter::head_bytes() const {
  std::uint64_t bytes = 2 * (trials_.size() + 1) * sizeof(float);
  for (const std::uint64_t factor : {setting_.tokens, setting_.dim}) bytes = detail::saturating_multiply(bytes, factor);
  return bytes;
}

std::uint64_t DistortMeter::heads_at_once() const {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 28U;
  return std::max<std::uint64_t>(kBytes / head_bytes(), 1);
}

void DistortMeter::step_done(std::uint64_t steps) {
  steps_done_ += steps;
  if (done_) done_(static_cast<double>(steps_done_) / static_cast<double>(steps_));
}

void DistortMeter::add(Device& device, std::span<const Capture> captures, const std::function<void(double)>& done) {
  std::vector<Sample> samples = samples_of(captures);
  done_ = done;
  steps_done_ = 0;
  steps_ = trials_.size() * captures.size();
  for (const Sample& sample : samples) steps_ += (sample.queries.size() + kQueriesAtOnce - 1) / kQueriesAtOnce;
  std::vector<HeadMeasure> measures;
  for (const Capture& capture : captures) measures.push_back({capture.head, empty_measure(trials_)});
  const std::vector<Head> heads = restore_all(device, captures, measures);
  measure_attention(heads, samples);
  for (const Sample& sample : samples) add_sums(sample, measures[sample.capture].measure);
  std::ranges::move(measures, std::back_inserter(heads_));
}

std::vector<DistortMeter::Head> DistortMeter::restore_all(Device& device, std::span<const Capture> captures,
                                                          std::span<HeadMeasure> measures) {
  std::vector<Head> heads(captures.size());
  run_with(threads_, {.items = captures.size(), .run = [&](std::uint32_t, std::uint64_t at) {
                        heads[at] = {{tiled_keys(captures[at].keys, setting_.dim), captures[at].values},
                                     std::vector<HeadNumbers>(trials_.size())};
                      }});
  for (std::size_t index = 0; index < trials_.size(); ++index) {
    const Trial& trial = trials_[index];
    std::vector<Restored> restored = restore(device, setting_, trial, captures);
    run_with(threads_, {.items = captures.size() * 2, .run = [&](std::uint32_t, std::uint64_t item) {
                          const std::uint64_t at = item / 2;
                          const Capture& capture = captures[at];
                          TrialSums& sums = measures[at].measure.trials[index];
                          HeadNumbers& numbers = heads[at].restored[index];
                          if (item % 2 == 0) {
                            sums.keys = storage_sums(setting_, trial, KvSide::keys, {capture.keys, restored[at].keys});
                            numbers.keys = tiled_keys(restored[at].keys, setting_.dim);
                          } else {
                            sums.values =
                                storage_sums(setting_, trial, KvSide::values, {capture.values, restored[at].values});
                            numbers.values = std::move(restored[at].values);
                          }
                        }});
    step_done(captures.size());
  }
  return heads;
}

std::vector<DistortMeter::Sample> DistortMeter::samples_of(std::span<const Capture> captures) const {
  std::vector<Sample> samples;
  const std::uint64_t head_size = setting_.tokens * setting_.dim;
  for (std::size_t at = 0; at < captures.size(); ++at) {
    const std::span all(captures[at].queries);
    for (std::uint64_t head = 0; head * head_size < all.size(); ++head) {
      const std::uint64_t seed = (heads_.size() + at) * kMostQueryHeads + head;
      Sample sample{at, sampled_positions(kFirstQuery, setting_.tokens, setting_.sample, seed)};
      for (const Sampled& one : sample.positions) {
        const std::uint64_t begin = head * head_size + one.position * setting_.dim;
        sample.queries.push_back({all.subspan(begin, setting_.dim), one.position});
      }
      sample.records.assign(sample.queries.size(), empty_record(trials_));
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

void DistortMeter::measure_attention(std::span<const Head> heads, std::span<Sample> samples) {
  struct Item {
    Sample* sample;
    std::size_t first, count;
  };
  std::vector<Item> items;
  for (Sample& sample : samples) {
    // The latest queries see most: they come first, so that no thread is left with a long one at the end.
    const std::size_t tiles = (sample.queries.size() + kQueriesAtOnce - 1) / kQueriesAtOnce;
    for (std::size_t tile = tiles; tile-- > 0;) {
      const std::size_t first = tile * kQueriesAtOnce;
      items.push_back({&sample, first, std::min<std::size_t>(kQueriesAtOnce, sample.queries.size() - first)});
    }
  }
  const auto workers = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads_, items.size()));
  std::vector<TileMeter> meters(workers, TileMeter(setting_, trials_));
  const std::uint64_t before = steps_done_;
  run_with(workers, {.items = items.size(),
                     .run =
                         [&](std::uint32_t worker, std::uint64_t index) {
                           const Item& item = items[index];
                           const Head& head = heads[item.sample->capture];
                           meters[worker].measure(head.exact, head.restored,
                                                  std::span(item.sample->queries).subspan(item.first, item.count),
                                                  std::span(item.sample->records).subspan(item.first, item.count));
                         },
                     .done =
                         [&](std::uint64_t begun) {
                           steps_done_ = before;
                           step_done(begun);
                         }});
}

void DistortMeter::add_sums(const Sample& sample, Measure& measure) const {
  std::vector<RatioSums::Term> terms(sample.records.size());
  const auto add = [&](RatioSums& sums, const auto& term_of) {
    for (std::size_t at = 0; at < terms.size(); ++at) {
      const RatioSums::Term term = term_of(sample.records[at]);
      const double weight = sample.positions[at].weight;
      terms[at] = {weight * term.part, weight * term.whole};
    }
    sums.add(terms);
  };
  for (std::size_t index = 0; index < trials_.size(); ++index) {
    TrialSums& sums = measure.trials[index];
    add(sums.logits, [&](const QueryRecord& record) -> RatioSums::Term {
      return {record.trials[index].logit_error, record.trials[index].logit_square};
    });
    add(sums.divergence,
        [&](const QueryRecord& record) -> RatioSums::Term { return {record.trials[index].divergence, 1}; });
    for (std::size_t partner = 0; partner < sums.outputs.size(); ++partner) {
      add(sums.outputs[partner], [&](const QueryRecord& record) -> RatioSums::Term {
        return {record.trials[index].output_error[partner], record.output_square};
      });
    }
  }
  measure.queries += sample.queries.size();
}

}  // namespace rota::tool
