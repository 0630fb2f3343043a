#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distort/tiles.h"
#include "distort/trial.h"

// What codecs do to attention, in f64, for some queries at a time.

namespace rota::tool {

// One head as attention reads it fastest.
struct HeadNumbers {
  std::vector<float> keys;    // as tiled_keys() has them
  std::vector<float> values;  // [token][dim]
};

struct Query {
  std::span<const float> numbers;
  std::uint64_t position;
};

// What one trial did to one query's attention.
struct TrialRecord {
  double logit_error = 0, logit_square = 0;  // over sealed keys, both less their mean
  double divergence = 0;                     // of weights, in nats
  std::vector<double> output_error{};        // squares; one per partner
};

struct QueryRecord {
  double output_square = 0;
  std::vector<TrialRecord> trials{};
};

inline constexpr std::uint64_t kQueriesAtOnce = 4 * kTileRows;

class TileMeter {
 public:
  TileMeter(const Setting& setting, std::span<const Trial> trials);

  // At most kQueriesAtOnce queries, later ones behind. A record depends on its query alone. `restored` has one for each
  // trial.
  void measure(const HeadNumbers& exact, std::span<const HeadNumbers> restored, std::span<const Query> queries,
               std::span<QueryRecord> records);

 private:
  using Numbers = std::vector<double>;

  // What a group of kTileRows rows takes of all tokens, as each of its rows does.
  std::vector<Range> groups_of(std::span<const Range> rows) const;
  std::span<double> row(Numbers& of, std::uint64_t index) const {
    return std::span(of).subspan(index * stride_, stride_);
  }
  std::span<double> output(Numbers& of, std::uint64_t index) const {
    return std::span(of).subspan(index * setting_.dim, setting_.dim);
  }
  void load(std::span<const Query> queries);
  void multiply_keys(const HeadNumbers& head, std::span<const Range> groups, Numbers& logits) const;
  void multiply_values(std::span<const float> values, std::span<const Range> groups, Numbers& weights,
                       Numbers& outputs) const;
  void measure_exact(const HeadNumbers& exact, std::span<QueryRecord> records);
  void measure_weights(std::size_t trial, std::uint64_t index, QueryRecord& record);
  void measure_outputs(std::size_t trial, std::span<const HeadNumbers> restored, std::span<const float> exact_values,
                       std::span<QueryRecord> records);

  Setting setting_;
  std::span<const Trial> trials_;
  std::uint64_t stride_;  // of rows that have a number for each token

  std::vector<Range> seen_{}, sealed_{};  // of each row
  Numbers queries_;                       // [group][dim][row], times the softmax scale
  Numbers logits_, weights_, restored_logits_, restored_weights_, sealed_weights_;
  Numbers outputs_, kept_outputs_, restored_outputs_;
  Numbers errors_;
  std::vector<double> log_sums_;
};

}  // namespace rota::tool
