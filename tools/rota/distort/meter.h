#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distort/captures.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/kv_spec.h"

// What codecs do to numbers and to attention over them. Pages are sealed and restored by the library's own ops;
// attention is computed in f64. What is reported are quotients of sums over all queries, query heads and captures.

namespace rota::tool {

struct Range {
  std::uint64_t begin, end;
};

// What is the same for all captures of a source.
struct Setting {
  std::uint64_t tokens, dim;
  double scale;  // of logits
  std::uint64_t tail, sinks;

  // The keys that a query at `position` sees sealed.
  Range sealed(std::uint64_t position, std::uint32_t page) const;
};

// One way to keep keys and values.
struct Trial {
  std::string name;
  KvCodec codec;
  std::uint32_t page;
  std::vector<std::size_t> partners;  // trials whose values are attended to with the weights of this one's keys
};

// Of a dim that check_head_dim() takes; none if the trial does not seal.
std::optional<PageFormat> page_format(const Trial& trial, KvSide side, std::uint64_t dim);

// Sums over what one way did to keys, or to values.
struct StorageSums {
  std::uint64_t values = 0;
  double error = 0, square = 0;
  double coded_square = 0;  // of what the codec codes: keys less their page's mean, where that is kept beside them
  double largest_error = 0;
};

double ratio(double part, double whole);  // 0 / 0 is 0

class DistortMeter {
 public:
  DistortMeter(const Setting& setting, std::vector<Trial> trials);

  // Fails with a message that names the capture.
  void add(Device& device, const Capture& capture);

  const std::vector<Trial>& trials() const { return trials_; }
  std::uint64_t queries() const { return queries_; }

  const StorageSums& storage(std::size_t trial, KvSide side) const {
    return side == KvSide::keys ? sums_[trial].keys : sums_[trial].values;
  }
  double logit_error(std::size_t trial) const;  // RMS by RMS, both less their query's mean
  double divergence(std::size_t trial) const;   // of weights, in nats per query
  double sealed_share(std::size_t trial) const;
  double output_error(std::size_t keys, std::size_t values) const;  // values is a partner of keys

 private:
  // One head as attention reads it fastest.
  struct Head {
    std::vector<float> keys;    // [dim][token]
    std::vector<float> values;  // [token][dim]
  };
  struct Sums {
    StorageSums keys{}, values{};
    double logit_error = 0, logit_square = 0, divergence = 0, sealed_share = 0;
    std::vector<double> output_error{};  // one per partner
  };

  void add_storage_errors(std::size_t trial);
  void add_query(std::span<const float> query, std::uint64_t position);
  void add_trial(std::size_t trial, Range seen, double log_sum);
  void add_outputs(std::size_t trial, Range seen, Range sealed);
  void find_logits(const Head& head, Range range, std::span<double> logits) const;

  Setting setting_;
  std::vector<Trial> trials_;
  std::vector<Sums> sums_;  // one per trial
  double output_square_ = 0;
  std::uint64_t queries_ = 0;

  Head exact_{};
  std::vector<Head> restored_{};  // one per trial

  // Of one query at a time: per token, and per dim.
  std::vector<double> logits_, weights_, restored_logits_, restored_weights_, errors_;
  std::vector<double> query_, output_, kept_output_, restored_output_;
};

}  // namespace rota::tool
