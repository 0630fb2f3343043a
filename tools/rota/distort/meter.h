#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "distort/captures.h"
#include "distort/sample.h"
#include "distort/storage.h"
#include "distort/tile_meter.h"
#include "distort/trial.h"
#include "rota/device.h"

// What codecs do to numbers and to attention over them. Pages are sealed and restored by the library's own ops;
// attention is computed in f64. What is reported are quotients of sums over queries, query heads and captures.

namespace rota::tool {

struct TrialSums {
  StorageSums keys{}, values{};
  RatioSums logits{};                // squares of errors by squares of logits, both less their query's mean
  RatioSums divergence{};            // of weights, in nats, by queries
  std::vector<RatioSums> outputs{};  // squares of errors by squares of outputs; one per partner
};

// Sums over one head, or over several.
struct Measure {
  std::uint64_t queries = 0;  // that were looked at
  std::vector<TrialSums> trials{};

  Measure& operator+=(const Measure& other);
};

struct HeadMeasure {
  HeadName head;
  Measure measure;
};

class DistortMeter {
 public:
  DistortMeter(const Setting& setting, std::vector<Trial> trials, std::uint32_t threads);

  // Heads that fit into memory together. `done` is told the share of them that has been measured. Sums depend neither
  // on the number of threads nor on what else is in the span.
  void add(Device& device, std::span<const Capture> captures, const std::function<void(double share)>& done);

  // What one head takes while it is measured.
  std::uint64_t head_bytes() const;
  // How many heads add() should take at once.
  std::uint64_t heads_at_once() const;

  const Setting& setting() const { return setting_; }
  const std::vector<Trial>& trials() const { return trials_; }
  const std::vector<HeadMeasure>& heads() const { return heads_; }

 private:
  struct Head {
    HeadNumbers exact{};
    std::vector<HeadNumbers> restored{};  // one per trial
  };
  // Queries of one query head.
  struct Sample {
    std::size_t capture;
    std::vector<Sampled> positions{};
    std::vector<Query> queries{};
    std::vector<QueryRecord> records{};
  };

  std::vector<Head> restore_all(Device& device, std::span<const Capture> captures, std::span<HeadMeasure> measures);
  std::vector<Sample> samples_of(std::span<const Capture> captures) const;
  void measure_attention(std::span<const Head> heads, std::span<Sample> samples);
  void add_sums(const Sample& sample, Measure& measure) const;
  void step_done(std::uint64_t steps);

  Setting setting_;
  std::vector<Trial> trials_;
  std::uint32_t threads_;
  std::vector<HeadMeasure> heads_{};
  std::uint64_t steps_ = 0, steps_done_ = 0;  // of the heads that are being added
  std::function<void(double)> done_{};
};

// Over all of them, in their order; of no heads all sums are 0.
Measure sum_of(std::span<const HeadMeasure> heads, std::span<const Trial> trials);

}  // namespace rota::tool
