#include "distort/meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "rota/dtype.h"
#include "rota/ops.h"

namespace rota::tool {
namespace {

// The library knows nothing of captures; its message gets the name of the one whose numbers it was given.
template <class T>
T value_for(const std::string& name, Result<T> result) {
  if (!result) {
    // An argument that came from a capture is the capture's fault.
    const Errc code = result.error().code == Errc::invalid_argument ? Errc::io : result.error().code;
    throw BadResult({code, fmt::format("{}: {}", name, result.error().message)});
  }
  return std::move(result).value();
}

std::vector<float> rounded(std::span<const float> values, DType dtype) {
  std::vector<float> result(values.begin(), values.end());
  for (float& value : result) {
    if (dtype == DType::f16) value = f32_from_f16(f16_from_f32(value));
    if (dtype == DType::bf16) value = f32_from_bf16(bf16_from_f32(value));
  }
  return result;
}

// [token][dim]; tokens of the last partial page are as they were.
Result<std::vector<float>> sealed_and_restored(Device& device, const Array& from, const PageFormat& format,
                                               std::uint64_t sinks) {
  const std::uint64_t pages = from.shape[0] / format.tokens;
  const std::uint64_t elements = pages * format.tokens * format.head_dim;
  const SlotShape shape{.pages = pages, .page_slots = format.tokens, .heads = 1, .dim = format.head_dim};
  Buffer floats = device.allocate(elements * sizeof(float)).value();
  std::vector<float> restored = from.values;
  floats.write(std::as_bytes(std::span(restored).first(elements))).value();

  std::vector<SealPage> seals;
  std::vector<UnsealPage> unseals;
  for (std::uint64_t page = 0; page < pages; ++page) {
    const std::uint64_t before = page * format.tokens;
    const std::uint64_t own_sinks = std::min<std::uint64_t>(sinks - std::min(sinks, before), format.tokens);
    seals.push_back({.from = page, .to = page, .sinks = own_sinks});
    unseals.push_back({.from = page, .to = page});
  }
  const auto slots = SlotView::head_major(floats, DType::f32, shape);
  const auto sealed =
      SealedView::packed(device.allocate(pages * page_bytes(format)).value(), format, {.pages = pages, .heads = 1});
  Buffer counter = device.allocate(sizeof(std::uint64_t)).value();
  counter.write(std::vector<std::byte>(sizeof(std::uint64_t))).value();
  Encoder encoder = device.encoder();
  seal(encoder, {.from = slots, .to = sealed, .pages = seals, .non_finite = {counter}});
  unseal(encoder, {.from = sealed, .to = slots, .pages = unseals});
  const auto done = std::move(encoder).submit();
  if (!done) return done.error();
  if (const Status status = done->wait(); !status) return status.error();
  floats.read(std::as_writable_bytes(std::span(restored).first(elements))).value();
  return restored;
}

std::vector<float> transposed(std::span<const float> rows, std::uint64_t dim) {
  const std::uint64_t count = rows.size() / dim;
  std::vector<float> columns(rows.size());
  for (std::uint64_t row = 0; row < count; ++row) {
    for (std::uint64_t column = 0; column < dim; ++column) columns[column * count + row] = rows[row * dim + column];
  }
  return columns;
}

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

void add_values(std::span<const float> values, std::span<const double> weights, Range range, std::span<double> output) {
  for (std::uint64_t token = range.begin; token < range.end; ++token) {
    const std::span value = values.subspan(token * output.size(), output.size());
    for (std::size_t at = 0; at < output.size(); ++at) output[at] += weights[token] * static_cast<double>(value[at]);
  }
}

double centred_square(std::span<const double> values) {
  double sum = 0, square = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) square += (value - mean) * (value - mean);
  return square;
}

void add_error(StorageSums& sums, float exact, float restored) {
  const auto value = static_cast<double>(exact);
  const double error = static_cast<double>(restored) - value;
  ++sums.values;
  sums.square += value * value;
  sums.error += error * error;
  sums.largest_error = std::max(sums.largest_error, std::abs(error));
}

}  // namespace

double ratio(double part, double whole) {
  if (whole == 0 && part == 0) return 0;
  return part / whole;
}

std::optional<PageFormat> page_format(const Trial& trial, KvSide side, std::uint64_t dim) {
  const std::optional<Codec> codec = sealed_codec(trial.codec);
  if (!codec) return std::nullopt;
  return PageFormat{.codec = *codec, .side = side, .head_dim = static_cast<std::uint32_t>(dim), .tokens = trial.page};
}

Range Setting::sealed(std::uint64_t position, std::uint32_t page) const {
  const std::uint64_t older = position + 1 - std::min(position + 1, tail);
  const std::uint64_t end = older / page * page;
  return {std::min(sinks, end), end};
}

DistortMeter::DistortMeter(const Setting& setting, std::vector<Trial> trials)
    : setting_(setting), trials_(std::move(trials)) {
  for (const Trial& trial : trials_) {
    sums_.emplace_back();
    sums_.back().output_error.resize(trial.partners.size());
  }
  for (auto* const per_token : {&logits_, &weights_, &restored_logits_, &restored_weights_, &errors_}) {
    per_token->resize(setting_.tokens);
  }
  for (auto* const per_dim : {&query_, &output_, &kept_output_, &restored_output_}) per_dim->resize(setting_.dim);
}

void DistortMeter::add(Device& device, const Capture& capture) {
  exact_ = {transposed(capture.keys.values, setting_.dim), capture.values.values};
  restored_.clear();
  for (std::size_t index = 0; index < trials_.size(); ++index) {
    const Trial& trial = trials_[index];
    const auto restore = [&](const Array& from, KvSide side, const std::string& name) {
      const std::optional<PageFormat> format = page_format(trial, side, setting_.dim);
      if (!format) return rounded(from.values, std::get<DType>(trial.codec));
      return value_for(name, sealed_and_restored(device, from, *format, setting_.sinks));
    };
    const std::vector<float> keys = restore(capture.keys, KvSide::keys, capture.key_name);
    restored_.push_back({transposed(keys, setting_.dim), restore(capture.values, KvSide::values, capture.value_name)});
    add_storage_errors(index);
  }
  const std::uint64_t heads = capture.queries.shape[1];
  for (std::uint64_t position = kFirstQuery; position < setting_.tokens; ++position) {
    for (std::uint64_t head = 0; head < heads; ++head) {
      const std::uint64_t row = (position * heads + head) * setting_.dim;
      add_query(std::span(capture.queries.values).subspan(row, setting_.dim), position);
    }
  }
}

double DistortMeter::logit_error(std::size_t trial) const {
  return std::sqrt(ratio(sums_[trial].logit_error, sums_[trial].logit_square));
}
double DistortMeter::divergence(std::size_t trial) const {
  return sums_[trial].divergence / static_cast<double>(queries_);
}
double DistortMeter::sealed_share(std::size_t trial) const {
  return sums_[trial].sealed_share / static_cast<double>(queries_);
}
double DistortMeter::output_error(std::size_t keys, std::size_t values) const {
  const auto& partners = trials_[keys].partners;
  const auto found = std::ranges::find(partners, values) - partners.begin();
  return std::sqrt(ratio(sums_[keys].output_error[static_cast<std::size_t>(found)], output_square_));
}

void DistortMeter::add_storage_errors(std::size_t trial) {
  const Head& restored = restored_[trial];
  const std::uint32_t tokens = trials_[trial].page;
  const std::optional<PageFormat> format = page_format(trials_[trial], KvSide::keys, setting_.dim);
  const bool has_mean = format && format->has_mean();
  StorageSums &keys = sums_[trial].keys, &values = sums_[trial].values;
  for (std::uint64_t begin = 0; begin + tokens <= setting_.tokens; begin += tokens) {
    const Range range{std::clamp(setting_.sinks, begin, begin + tokens), begin + tokens};
    const std::span page = std::span(errors_).first(range.end - range.begin);
    for (std::uint64_t at = 0; at < setting_.dim && !page.empty(); ++at) {
      const std::uint64_t row = at * setting_.tokens;
      for (std::uint64_t token = range.begin; token < range.end; ++token) {
        page[token - range.begin] = static_cast<double>(exact_.keys[row + token]);
        add_error(keys, exact_.keys[row + token], restored.keys[row + token]);
      }
      if (has_mean) keys.coded_square += centred_square(page);
    }
    for (std::uint64_t at = range.begin * setting_.dim; at < range.end * setting_.dim; ++at) {
      add_error(values, exact_.values[at], restored.values[at]);
    }
  }
  if (!has_mean) keys.coded_square = keys.square;
  values.coded_square = values.square;
}

void DistortMeter::add_query(std::span<const float> query, std::uint64_t position) {
  std::ranges::transform(query, query_.begin(),
                         [&](float value) { return static_cast<double>(value) * setting_.scale; });
  const Range seen{0, position + 1};
  find_logits(exact_, seen, logits_);
  const double log_sum = softmax(std::span(logits_).first(seen.end), std::span(weights_).first(seen.end));
  std::ranges::fill(output_, 0);
  add_values(exact_.values, weights_, seen, output_);
  for (const double value : output_) output_square_ += value * value;
  ++queries_;
  for (std::size_t trial = 0; trial < trials_.size(); ++trial) {
    if (!trials_[trial].partners.empty()) add_trial(trial, seen, log_sum);
  }
}

// logits[token] for the range's tokens. query_ has the softmax scale in it.
void DistortMeter::find_logits(const Head& head, Range range, std::span<double> logits) const {
  for (std::uint64_t token = range.begin; token < range.end; ++token) logits[token] = 0;
  const float* row = head.keys.data();
  for (const double factor : query_) {
    for (std::uint64_t token = range.begin; token < range.end; ++token) {
      logits[token] += factor * static_cast<double>(row[token]);
    }
    row += logits.size();
  }
}

// Precondition: the exact logits, weights and output of this query are there.
void DistortMeter::add_trial(std::size_t trial, Range seen, double log_sum) {
  Sums& sums = sums_[trial];
  const Range sealed = setting_.sealed(seen.end - 1, trials_[trial].page);
  const std::uint64_t count = sealed.end - sealed.begin;
  sums.sealed_share += static_cast<double>(count) / static_cast<double>(seen.end);
  std::ranges::copy(std::span(logits_).first(seen.end), restored_logits_.begin());
  find_logits(restored_[trial], sealed, restored_logits_);
  if (count != 0) {
    const std::span errors = std::span(errors_).first(count);
    for (std::uint64_t at = 0; at < count; ++at) {
      errors[at] = restored_logits_[sealed.begin + at] - logits_[sealed.begin + at];
    }
    sums.logit_error += centred_square(errors);
    sums.logit_square += centred_square(std::span(logits_).subspan(sealed.begin, count));
  }
  const double restored_log_sum =
      softmax(std::span(restored_logits_).first(seen.end), std::span(restored_weights_).first(seen.end));
  sums.divergence += restored_log_sum - log_sum;
  for (std::uint64_t token = sealed.begin; token < sealed.end; ++token) {
    sums.divergence += weights_[token] * (logits_[token] - restored_logits_[token]);
  }
  add_outputs(trial, seen, sealed);
}

void DistortMeter::add_outputs(std::size_t trial, Range seen, Range sealed) {
  const std::vector<std::size_t>& partners = trials_[trial].partners;
  std::ranges::fill(kept_output_, 0);
  add_values(exact_.values, restored_weights_, {seen.begin, sealed.begin}, kept_output_);
  add_values(exact_.values, restored_weights_, {sealed.end, seen.end}, kept_output_);
  for (std::size_t partner = 0; partner < partners.size(); ++partner) {
    std::ranges::copy(kept_output_, restored_output_.begin());
    add_values(restored_[partners[partner]].values, restored_weights_, sealed, restored_output_);
    for (std::uint64_t at = 0; at < setting_.dim; ++at) {
      const double error = restored_output_[at] - output_[at];
      sums_[trial].output_error[partner] += error * error;
    }
  }
}

}  // namespace rota::tool
