#include "distort/tile_meter.h"

#include <algorithm>
#include <cmath>

namespace rota::tool {
namespace {

constexpr std::uint64_t kChunk = 256;  // tokens whose numbers stay in the second cache for all groups of rows

// Returns the logarithm of the sum of exponentials.
double softmax(std::span<const double> logits, std::span<double> weights) {
  const double highest = *std::ranges::max_element(logits);
  double sum = 0;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    weights[token] = std::exp(logits[token] - highest);
    sum += weights[token];
  }
  for (double& weight : weights) weight /= sum;
  return highest + std::log(sum);
}

double centred_square(std::span<const double> values) {
  double sum = 0, square = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) square += (value - mean) * (value - mean);
  return square;
}

double square_of(std::span<const double> values) {
  double square = 0;
  for (const double value : values) square += value * value;
  return square;
}

double square_of_difference(std::span<const double> one, std::span<const double> other) {
  double square = 0;
  for (std::size_t at = 0; at < one.size(); ++at) square += (one[at] - other[at]) * (one[at] - other[at]);
  return square;
}

void clear(std::span<double> row, Range range) {
  std::ranges::fill(row.subspan(range.begin, range.end - range.begin), 0);
}

}  // namespace

TileMeter::TileMeter(const Setting& setting, std::span<const Trial> trials)
    : setting_(setting), trials_(trials), stride_(whole_tiles(setting.tokens)) {
  for (Numbers* const per_token : {&logits_, &weights_, &restored_logits_, &restored_weights_, &sealed_weights_}) {
    per_token->resize(kQueriesAtOnce * stride_);
  }
  for (Numbers* const per_dim : {&queries_, &outputs_, &kept_outputs_, &restored_outputs_}) {
    per_dim->resize(kQueriesAtOnce * setting_.dim);
  }
  errors_.resize(stride_);
  log_sums_.resize(kQueriesAtOnce);
}

std::vector<Range> TileMeter::groups_of(std::span<const Range> rows) const {
  std::vector<Range> groups;
  for (std::size_t first = 0; first < rows.size(); first += kTileRows) {
    Range group = rows[first];
    for (const Range& range : rows.subspan(first, kTileRows)) {
      group = {std::min(group.begin, range.begin), std::max(group.end, range.end)};
    }
    groups.push_back(group);
  }
  return groups;
}

// The last tile's other rows are its last query again.
void TileMeter::load(std::span<const Query> queries) {
  const std::uint64_t rows = (queries.size() + kTileRows - 1) / kTileRows * kTileRows;
  seen_.clear();
  for (std::uint64_t index = 0; index < rows; ++index) {
    const Query& query = queries[std::min<std::uint64_t>(index, queries.size() - 1)];
    seen_.push_back({0, query.position + 1});
    double* const to = queries_.data() + index / kTileRows * kTileRows * setting_.dim + index % kTileRows;
    for (std::uint64_t at = 0; at < setting_.dim; ++at) {
      to[at * kTileRows] = static_cast<double>(query.numbers[at]) * setting_.scale;
    }
  }
}

void TileMeter::multiply_keys(const HeadNumbers& head, std::span<const Range> groups, Numbers& logits) const {
  for (std::uint64_t begin = 0; begin < stride_; begin += kChunk) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const std::uint64_t end = std::min(begin + kChunk, whole_tiles(groups[group].end));
      if (end <= begin) continue;
      const std::uint64_t first = group * kTileRows;
      find_logits(std::span(queries_).subspan(first * setting_.dim, kTileRows * setting_.dim),
                  std::span(head.keys).subspan(begin * setting_.dim), end - begin,
                  {logits.data() + first * stride_ + begin, stride_});
    }
  }
}

void TileMeter::multiply_values(std::span<const float> values, std::span<const Range> groups, Numbers& weights,
                                Numbers& outputs) const {
  for (std::uint64_t chunk = 0; chunk < setting_.tokens; chunk += kChunk) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const std::uint64_t begin = std::max(chunk, groups[group].begin);
      const std::uint64_t end = std::min(chunk + kChunk, groups[group].end);
      if (end <= begin) continue;
      const std::uint64_t first = group * kTileRows;
      add_values(values.subspan(begin * setting_.dim, (end - begin) * setting_.dim), end - begin,
                 {weights.data() + first * stride_ + begin, stride_},
                 {outputs.data() + first * setting_.dim, setting_.dim});
    }
  }
}

void TileMeter::measure_exact(const HeadNumbers& exact, std::span<QueryRecord> records) {
  const std::vector<Range> groups = groups_of(seen_);
  multiply_keys(exact, groups, logits_);
  for (std::uint64_t index = 0; index < seen_.size(); ++index) {
    const std::uint64_t seen = seen_[index].end;
    log_sums_[index] = softmax(row(logits_, index).first(seen), row(weights_, index).first(seen));
    clear(row(weights_, index), {seen, groups[index / kTileRows].end});
  }
  std::ranges::fill(outputs_, 0);
  multiply_values(exact.values, groups, weights_, outputs_);
  for (std::size_t index = 0; index < records.size(); ++index) {
    records[index].output_square = square_of(output(outputs_, index));
  }
}

void TileMeter::measure(const HeadNumbers& exact, std::span<const HeadNumbers> restored, std::span<const Query> queries,
                        std::span<QueryRecord> records) {
  load(queries);
  measure_exact(exact, records);
  for (std::size_t trial = 0; trial < trials_.size(); ++trial) {
    sealed_.clear();
    for (const Range& seen : seen_) sealed_.push_back(setting_.sealed(seen.end - 1, trials_[trial].page));
    multiply_keys(restored[trial], groups_of(sealed_), restored_logits_);
    QueryRecord left_out{0, std::vector<TrialRecord>(trials_.size())};
    for (std::uint64_t index = 0; index < seen_.size(); ++index) {
      measure_weights(trial, index, index < records.size() ? records[index] : left_out);
    }
    measure_outputs(trial, restored, exact.values, records);
  }
}

// Precondition: the exact logits and weights of the row are there, and restored logits of its sealed keys.
void TileMeter::measure_weights(std::size_t trial, std::uint64_t index, QueryRecord& record) {
  TrialRecord& result = record.trials[trial];
  const std::uint64_t seen = seen_[index].end;
  const Range sealed = sealed_[index];
  const std::uint64_t count = sealed.end - sealed.begin;
  const std::span logits = row(logits_, index).first(seen), weights = row(weights_, index);
  const std::span restored = row(restored_logits_, index).first(seen);
  std::ranges::copy(logits.first(sealed.begin), restored.begin());
  std::ranges::copy(logits.subspan(sealed.end), restored.subspan(sealed.end).begin());
  if (count != 0) {
    const std::span errors = std::span(errors_).first(count);
    for (std::uint64_t at = 0; at < count; ++at) errors[at] = restored[sealed.begin + at] - logits[sealed.begin + at];
    result.logit_error = centred_square(errors);
    result.logit_square = centred_square(logits.subspan(sealed.begin, count));
  }
  result.divergence = softmax(restored, row(restored_weights_, index).first(seen)) - log_sums_[index];
  for (std::uint64_t token = sealed.begin; token < sealed.end; ++token) {
    result.divergence += weights[token] * (logits[token] - restored[token]);
  }
}

// Weights of sealed tokens meet restored values, all others exact ones.
void TileMeter::measure_outputs(std::size_t trial, std::span<const HeadNumbers> restored,
                                std::span<const float> exact_values, std::span<QueryRecord> records) {
  const std::vector<Range> sealed_groups = groups_of(sealed_), seen_groups = groups_of(seen_);
  std::vector<Range> sinks, tails;
  for (std::size_t group = 0; group < seen_groups.size(); ++group) {
    std::uint64_t first_tail = seen_groups[group].end, last_sink = 0;
    for (const Range& range : std::span(sealed_).subspan(group * kTileRows, kTileRows)) {
      first_tail = std::min(first_tail, range.end);
      last_sink = std::max(last_sink, range.begin);
    }
    sinks.push_back({0, std::min(last_sink, first_tail)});
    tails.push_back({first_tail, seen_groups[group].end});
  }
  for (std::uint64_t index = 0; index < seen_.size(); ++index) {
    const std::span kept = row(restored_weights_, index), sealed = row(sealed_weights_, index);
    std::ranges::copy(kept.first(seen_[index].end), sealed.begin());
    clear(sealed, {0, sealed_[index].begin});
    clear(sealed, {sealed_[index].end, std::max(sealed_[index].end, sealed_groups[index / kTileRows].end)});
    clear(kept, sealed_[index]);
    clear(kept, {seen_[index].end, seen_groups[index / kTileRows].end});
  }
  std::ranges::fill(kept_outputs_, 0);
  multiply_values(exact_values, sinks, restored_weights_, kept_outputs_);
  multiply_values(exact_values, tails, restored_weights_, kept_outputs_);
  const std::vector<std::size_t>& partners = trials_[trial].partners;
  for (std::size_t partner = 0; partner < partners.size(); ++partner) {
    restored_outputs_ = kept_outputs_;
    multiply_values(restored[partners[partner]].values, sealed_groups, sealed_weights_, restored_outputs_);
    for (std::size_t index = 0; index < records.size(); ++index) {
      records[index].trials[trial].output_error[partner] =
          square_of_difference(output(restored_outputs_, index), output(outputs_, index));
    }
  }
}

}  // namespace rota::tool
