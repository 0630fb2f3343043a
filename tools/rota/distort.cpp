#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "npy.h"
#include "options.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/dtype.h"
#include "rota/ops.h"
#include "show.h"

// What sealed pages do to attention on recorded queries, keys and values. What is reported are quotients of sums over
// all queries, query heads and captures, in f64.

namespace rota::tool {
namespace {

constexpr std::array<std::uint32_t, 6> kWidths{2, 3, 4, 5, 6, 8};
constexpr std::size_t kOptionsWidth = 2;    // in kWidths: where the codec's options are tried
constexpr std::uint64_t kFirstQuery = 256;  // queries before it have little or nothing sealed to see

struct Options {
  std::string captures{};
  std::string output = "md";
  std::string device = "cpu";
  std::uint32_t page = 128;
  std::uint64_t tail = 128, sinks = 4;
  std::optional<double> scale{};
};

struct Capture {
  std::filesystem::path key_path, value_path;  // whom an error is about
  HalfArray queries;                           // [token, query head, dim]
  HalfArray keys, values;                      // [token, dim]
};

// One way to seal, and the sums over what it did.
struct Trial {
  std::string name;
  Turbo codec;
  std::uint32_t page;
  std::vector<std::size_t> partners;  // trials whose values are attended to with the weights of this one's keys

  double key_error = 0, key_square = 0, key_centred_square = 0;
  double value_error = 0, value_square = 0;
  double logit_error = 0, logit_square = 0;
  double divergence = 0;
  double sealed_share = 0;
  std::vector<double> output_error = std::vector<double>(partners.size());

  PageFormat format(KvSide side, std::uint64_t dim) const {
    // What no format has room for is refused as the largest number is.
    const std::uint64_t largest = std::numeric_limits<std::uint32_t>::max();
    return {.codec = codec, .side = side, .head_dim = std::min(dim, largest), .tokens = page};
  }
};

struct Range {
  std::uint64_t begin, end;
};

// One head as attention reads it fastest.
struct Head {
  std::vector<float> keys;    // [dim][token]
  std::vector<float> values;  // [token][dim]
};

double ratio(double part, double whole) {
  if (whole == 0 && part == 0) return 0;
  return part / whole;
}

// Errors end the command where they are found; run() says them.
[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, std::string_view wanted) {
  throw BadResult({Errc::io, fmt::format("{}: {}; wanted {}", path.string(), what, wanted)});
}

// The library knows nothing of files; its message gets the name of the one whose numbers it was given.
template <class T>
T value_for(const std::filesystem::path& path, Result<T> result) {
  if (!result) {
    // An argument that came from the file is the file's fault.
    const Errc code = result.error().code == Errc::invalid_argument ? Errc::io : result.error().code;
    throw BadResult({code, fmt::format("{}: {}", path.string(), result.error().message)});
  }
  return std::move(result).value();
}

// As seal reads numbers that are not finite. Exact attention reads them so, too: else it had no result to compare with.
float finite(std::uint16_t half) {
  constexpr float kLargest = 65504;
  const float value = f32_from_f16(half);
  return std::isnan(value) ? 0 : std::clamp(value, -kLargest, kLargest);
}

std::vector<float> floats_of(const HalfArray& array) {
  std::vector<float> floats(array.values.size());
  std::ranges::transform(array.values, floats.begin(), finite);
  return floats;
}

void check_finite(const std::filesystem::path& path, const HalfArray& array) {
  constexpr std::uint16_t kInfinity = 0x7c00;
  const auto bad = std::ranges::find_if(array.values, [](auto half) { return (half & kInfinity) == kInfinity; });
  if (bad == array.values.end()) return;
  fail(path, fmt::format("value {} is not finite", bad - array.values.begin()), "finite queries");
}

[[noreturn]] void fail_shape(const std::filesystem::path& path, const HalfArray& array, std::string_view wanted) {
  fail(path, "the shape is " + shape_text(array.shape), wanted);
}

Capture read_capture(const std::filesystem::path& folder, const std::string& name, const Options& options) {
  const std::filesystem::path query_path = folder / (name + "_q.npy");
  Capture capture{.key_path = folder / (name + "_k.npy"), .value_path = folder / (name + "_v.npy")};
  capture.keys = read_npy(capture.key_path).value();
  capture.values = read_npy(capture.value_path).value();
  capture.queries = read_npy(query_path).value();

  const auto& keys = capture.keys.shape;
  if (keys.size() != 2 || keys[0] <= kFirstQuery) {
    fail_shape(capture.key_path, capture.keys, fmt::format("(tokens, dim), more than {} tokens", kFirstQuery));
  }
  const Trial any{.codec = turbo(kWidths.front()), .page = options.page};
  value_for(capture.key_path, check(any.format(KvSide::keys, keys[1])));
  if (capture.values.shape != keys) {
    fail_shape(capture.value_path, capture.values, fmt::format("the keys' {}", shape_text(keys)));
  }
  const auto& queries = capture.queries.shape;
  if (queries.size() != 3 || queries[0] != keys[0] || queries[1] == 0 || queries[2] != keys[1]) {
    fail_shape(query_path, capture.queries, fmt::format("({}, query heads, {})", keys[0], keys[1]));
  }
  check_finite(query_path, capture.queries);
  return capture;
}

// Names of all that has queries, keys and values.
std::vector<std::string> find_captures(const std::filesystem::path& folder) {
  constexpr std::string_view kEnding = "_k.npy";
  std::vector<std::string> names;
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    std::string name = entry->path().filename().string();
    if (!name.ends_with(kEnding)) continue;
    name.resize(name.size() - kEnding.size());
    std::error_code ignored;
    const bool whole = std::filesystem::exists(folder / (name + "_q.npy"), ignored) &&
                       std::filesystem::exists(folder / (name + "_v.npy"), ignored);
    if (whole) names.push_back(std::move(name));
  }
  if (failure) fail(folder, failure.message(), "a folder of captures");
  if (names.empty()) fail(folder, "no captures", "NAME_q.npy, NAME_k.npy and NAME_v.npy");
  std::ranges::sort(names);
  return names;
}

std::vector<Capture> read_captures(const Options& options) {
  std::vector<Capture> captures;
  for (const std::string& name : find_captures(options.captures)) {
    captures.push_back(read_capture(options.captures, name, options));
    const Capture& last = captures.back();
    const auto& shape = captures.front().keys.shape;
    if (last.keys.shape != shape) fail_shape(last.key_path, last.keys, "the other captures' " + shape_text(shape));
  }
  return captures;
}

bool is_scale(double number) { return std::isfinite(number) && number > 0; }

double softmax_scale(const Options& options, std::uint64_t dim) {
  if (options.scale) return *options.scale;
  const double usual = 1 / std::sqrt(static_cast<double>(dim));
  const std::filesystem::path path = std::filesystem::path(options.captures) / "index.json";
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return usual;
  if (!std::filesystem::is_regular_file(path, failure)) fail(path, "is no file", "JSON");
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path, "is no JSON object", "one, with \"softmax_scale\" or without");
  const auto scale = json.find("softmax_scale");
  if (scale == json.end()) return usual;
  if (!scale->is_number() || !is_scale(scale->get<double>())) {
    fail(path, "softmax_scale is no positive number", "the factor of logits");
  }
  return scale->get<double>();
}

struct Restored {
  std::vector<float> values;  // [token][dim]; tokens of the last partial page are as they were
  std::uint64_t non_finite = 0;
};

Result<Restored> seal_and_unseal(Device& device, const HalfArray& from, const PageFormat& format, std::uint64_t sinks) {
  const std::uint64_t pages = from.shape[0] / format.tokens;
  const std::uint64_t elements = pages * format.tokens * format.head_dim;
  const SlotShape shape{.pages = pages, .page_slots = format.tokens, .heads = 1, .dim = format.head_dim};
  Buffer halves = device.allocate(elements * sizeof(std::uint16_t)).value();
  Buffer floats = device.allocate(elements * sizeof(float)).value();
  Buffer counter = device.allocate(sizeof(std::uint64_t)).value();
  halves.write(std::as_bytes(std::span(from.values).first(elements))).value();
  Restored restored{floats_of(from)};
  counter.write(std::as_bytes(std::span(&restored.non_finite, 1))).value();

  std::vector<SealPage> seals;
  std::vector<UnsealPage> unseals;
  for (std::uint64_t page = 0; page < pages; ++page) {
    const std::uint64_t before = page * format.tokens;
    const std::uint64_t own_sinks = std::min<std::uint64_t>(sinks - std::min(sinks, before), format.tokens);
    seals.push_back({.from = page, .to = page, .sinks = own_sinks});
    unseals.push_back({.from = page, .to = page});
  }
  const auto sealed =
      SealedView::packed(device.allocate(pages * page_bytes(format)).value(), format, {.pages = pages, .heads = 1});
  Encoder encoder = device.encoder();
  seal(
      encoder,
      {.from = SlotView::head_major(halves, DType::f16, shape), .to = sealed, .pages = seals, .non_finite = {counter}});
  unseal(encoder, {.from = sealed, .to = SlotView::head_major(floats, DType::f32, shape), .pages = unseals});
  const auto done = std::move(encoder).submit();
  if (!done) return done.error();
  if (const Status status = done->wait(); !status) return status.error();
  floats.read(std::as_writable_bytes(std::span(restored.values).first(elements))).value();
  counter.read(std::as_writable_bytes(std::span(&restored.non_finite, 1))).value();
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

// logits[token] for the range's tokens. `query` has the softmax scale in it.
void find_logits(const Head& head, std::span<const double> query, Range range, std::span<double> logits) {
  for (std::uint64_t token = range.begin; token < range.end; ++token) logits[token] = 0;
  const float* row = head.keys.data();
  for (const double factor : query) {
    for (std::uint64_t token = range.begin; token < range.end; ++token) {
      logits[token] += factor * static_cast<double>(row[token]);
    }
    row += logits.size();
  }
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

void add_values(const Head& head, std::span<const double> weights, Range range, std::span<double> output) {
  for (std::uint64_t token = range.begin; token < range.end; ++token) {
    const float* const value = head.values.data() + token * output.size();
    const double weight = weights[token];
    for (std::size_t at = 0; at < output.size(); ++at) output[at] += weight * static_cast<double>(value[at]);
  }
}

double centred_square(std::span<const double> values) {
  double sum = 0, square = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) square += (value - mean) * (value - mean);
  return square;
}

struct Setting {
  std::uint64_t tokens, dim;
  double scale;
  std::uint64_t tail, sinks;

  // The keys that a query at `position` sees sealed.
  Range sealed(std::uint64_t position, std::uint32_t page) const {
    const std::uint64_t older = position + 1 - std::min(position + 1, tail);
    const std::uint64_t end = older / page * page;
    return {std::min(sinks, end), end};
  }
};

class Meter {
 public:
  Meter(const Setting& setting, std::vector<Trial> trials) : setting_(setting), trials_(std::move(trials)) {}

  void add(Device& device, const Capture& capture) {
    exact_ = {transposed(floats_of(capture.keys), setting_.dim), floats_of(capture.values)};
    restored_.clear();
    for (Trial& trial : trials_) {
      const auto restore = [&](const HalfArray& from, KvSide side) {
        return seal_and_unseal(device, from, trial.format(side, setting_.dim), setting_.sinks);
      };
      Restored keys = value_for(capture.key_path, restore(capture.keys, KvSide::keys));
      Restored values = value_for(capture.value_path, restore(capture.values, KvSide::values));
      if (&trial == &trials_.front()) {
        non_finite_keys_ += keys.non_finite;
        non_finite_values_ += values.non_finite;
      }
      restored_.push_back({transposed(keys.values, setting_.dim), std::move(values.values)});
      add_storage_errors(restored_.back(), trial);
    }
    const std::uint64_t heads = capture.queries.shape[1];
    for (std::uint64_t position = kFirstQuery; position < setting_.tokens; ++position) {
      for (std::uint64_t head = 0; head < heads; ++head) {
        const std::uint64_t row = (position * heads + head) * setting_.dim;
        add_query(std::span(capture.queries.values).subspan(row, setting_.dim), position);
      }
    }
  }

  const std::vector<Trial>& trials() const { return trials_; }
  std::uint64_t queries() const { return queries_; }
  std::uint64_t non_finite_keys() const { return non_finite_keys_; }
  std::uint64_t non_finite_values() const { return non_finite_values_; }

  double per_query(double sum) const { return sum / static_cast<double>(queries_); }
  double output_error(std::size_t keys, std::size_t values) const {
    const auto& partners = trials_[keys].partners;
    const auto found = std::ranges::find(partners, values) - partners.begin();
    return std::sqrt(ratio(trials_[keys].output_error[static_cast<std::size_t>(found)], output_square_));
  }

 private:
  void add_storage_errors(const Head& restored, Trial& trial) {
    for (std::uint64_t begin = 0; begin + trial.page <= setting_.tokens; begin += trial.page) {
      const Range range{std::clamp(setting_.sinks, begin, begin + trial.page), begin + trial.page};
      const std::span page = std::span(errors_).first(range.end - range.begin);
      for (std::uint64_t at = 0; at < setting_.dim && !page.empty(); ++at) {
        const std::uint64_t row = at * setting_.tokens;
        for (std::uint64_t token = range.begin; token < range.end; ++token) {
          const auto key = static_cast<double>(exact_.keys[row + token]);
          page[token - range.begin] = key;
          trial.key_square += key * key;
          trial.key_error += std::pow(static_cast<double>(restored.keys[row + token]) - key, 2);
        }
        trial.key_centred_square += centred_square(page);
      }
      for (std::uint64_t at = range.begin * setting_.dim; at < range.end * setting_.dim; ++at) {
        const auto value = static_cast<double>(exact_.values[at]);
        trial.value_square += value * value;
        trial.value_error += std::pow(static_cast<double>(restored.values[at]) - value, 2);
      }
    }
  }

  void add_query(std::span<const std::uint16_t> query, std::uint64_t position) {
    std::ranges::transform(query, query_.begin(), [&](std::uint16_t half) {
      return static_cast<double>(f32_from_f16(half)) * setting_.scale;
    });
    const Range seen{0, position + 1};
    find_logits(exact_, query_, seen, logits_);
    const double log_sum = softmax(std::span(logits_).first(seen.end), std::span(weights_).first(seen.end));
    std::ranges::fill(output_, 0);
    add_values(exact_, weights_, seen, output_);
    for (const double value : output_) output_square_ += value * value;
    ++queries_;
    for (std::size_t trial = 0; trial < trials_.size(); ++trial) add_trial(trial, seen, log_sum);
  }

  // Precondition: the exact logits, weights and output of this query are there.
  void add_trial(std::size_t index, Range seen, double log_sum) {
    Trial& trial = trials_[index];
    const Range sealed = setting_.sealed(seen.end - 1, trial.page);
    const std::uint64_t count = sealed.end - sealed.begin;
    trial.sealed_share += static_cast<double>(count) / static_cast<double>(seen.end);
    std::ranges::copy(std::span(logits_).first(seen.end), restored_logits_.begin());
    find_logits(restored_[index], query_, sealed, restored_logits_);
    if (count != 0) {
      const std::span errors = std::span(errors_).first(count);
      for (std::uint64_t at = 0; at < count; ++at) {
        errors[at] = restored_logits_[sealed.begin + at] - logits_[sealed.begin + at];
      }
      trial.logit_error += centred_square(errors);
      trial.logit_square += centred_square(std::span(logits_).subspan(sealed.begin, count));
    }
    const double restored_log_sum =
        softmax(std::span(restored_logits_).first(seen.end), std::span(restored_weights_).first(seen.end));
    trial.divergence += restored_log_sum - log_sum;
    for (std::uint64_t token = sealed.begin; token < sealed.end; ++token) {
      trial.divergence += weights_[token] * (logits_[token] - restored_logits_[token]);
    }
    add_outputs(trial, seen, sealed);
  }

  void add_outputs(Trial& trial, Range seen, Range sealed) {
    std::ranges::fill(kept_output_, 0);
    add_values(exact_, restored_weights_, {seen.begin, sealed.begin}, kept_output_);
    add_values(exact_, restored_weights_, {sealed.end, seen.end}, kept_output_);
    for (std::size_t partner = 0; partner < trial.partners.size(); ++partner) {
      std::ranges::copy(kept_output_, restored_output_.begin());
      add_values(restored_[trial.partners[partner]], restored_weights_, sealed, restored_output_);
      for (std::uint64_t at = 0; at < setting_.dim; ++at) {
        const double error = restored_output_[at] - output_[at];
        trial.output_error[partner] += error * error;
      }
    }
  }

  Setting setting_;
  std::vector<Trial> trials_;
  double output_square_ = 0;
  std::uint64_t queries_ = 0, non_finite_keys_ = 0, non_finite_values_ = 0;

  Head exact_{};
  std::vector<Head> restored_{};  // one per trial

  // Of one query at a time: per token, and per dim.
  std::vector<double> logits_ = std::vector<double>(setting_.tokens);
  std::vector<double> weights_ = logits_, restored_logits_ = logits_, restored_weights_ = logits_, errors_ = logits_;
  std::vector<double> query_ = std::vector<double>(setting_.dim);
  std::vector<double> output_ = query_, kept_output_ = query_, restored_output_ = query_;
};

// The widths first, as kWidths has them, then what else is tried at one of them.
std::vector<Trial> trials_for(const Options& options) {
  std::vector<Trial> trials;
  const std::uint32_t other_page = options.page == 128 ? 64 : 128;
  std::vector<std::size_t> widths;
  for (std::size_t width = 0; width < kWidths.size(); ++width) widths.push_back(width);
  for (const std::uint32_t bits : kWidths) {
    trials.push_back({fmt::format("all on, pages of {}", options.page), turbo(bits), options.page, widths});
  }
  const auto add = [&](std::string name, const Turbo& codec, std::uint32_t page) {
    trials.push_back({std::move(name), codec, page, {trials.size()}});
  };
  const std::uint32_t bits = kWidths[kOptionsWidth];
  add("without key mean", {.bits = bits, .key_mean = false}, options.page);
  add("scale by least_squares", {.bits = bits, .scale = ScaleRule::least_squares}, options.page);
  add("scale by rms", {.bits = bits, .scale = ScaleRule::rms}, options.page);
  add(fmt::format("pages of {}", other_page), turbo(bits), other_page);
  return trials;
}

nlohmann::ordered_json widths_json(const Meter& meter, std::uint64_t dim) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Trial& trial : std::span(meter.trials()).first(kWidths.size())) {
    const auto stored_bits = [&](KvSide side) {
      return static_cast<double>(page_bytes(trial.format(side, dim)) * 8) / static_cast<double>(trial.page * dim);
    };
    rows.push_back({{"bits", std::uint32_t{trial.codec.bits}},
                    {"key_bits_stored", stored_bits(KvSide::keys)},
                    {"value_bits_stored", stored_bits(KvSide::values)},
                    {"key_error", ratio(trial.key_error, trial.key_square)},
                    {"key_error_centred", ratio(trial.key_error, trial.key_centred_square)},
                    {"value_error", ratio(trial.value_error, trial.value_square)},
                    {"logit_error", std::sqrt(ratio(trial.logit_error, trial.logit_square))},
                    {"kl", meter.per_query(trial.divergence)}});
  }
  return rows;
}

nlohmann::ordered_json outputs_json(const Meter& meter) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t keys = 0; keys < kWidths.size(); ++keys) {
    for (std::size_t values = 0; values < kWidths.size(); ++values) {
      rows.push_back({{"key_bits", kWidths[keys]},
                      {"value_bits", kWidths[values]},
                      {"output_error", meter.output_error(keys, values)}});
    }
  }
  return rows;
}

nlohmann::ordered_json options_json(const Meter& meter) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto add = [&](std::size_t index) {
    const Trial& trial = meter.trials()[index];
    rows.push_back({{"options", trial.name},
                    {"page", trial.page},
                    {"sealed_share", meter.per_query(trial.sealed_share)},
                    {"logit_error", std::sqrt(ratio(trial.logit_error, trial.logit_square))},
                    {"output_error", meter.output_error(index, index)},
                    {"kl", meter.per_query(trial.divergence)}});
  };
  add(kOptionsWidth);
  for (std::size_t index = kWidths.size(); index < meter.trials().size(); ++index) add(index);
  return rows;
}

std::string command_text(const Options& options, double scale) {
  return fmt::format("rota distort {} --device {} --page {} --tail {} --sinks {} --scale {}", options.captures,
                     options.device, options.page, options.tail, options.sinks, scale);
}

void print_markdown(const nlohmann::ordered_json& report) {
  const auto number = [](const nlohmann::ordered_json& row, const char* key) { return row.at(key).get<double>(); };
  fmt::print("`{}`: {} captures, {} tokens, dim {}, device {} ({})\n\n",
             one_line(report.at("command").get<std::string>()), report.at("captures").get<std::uint64_t>(),
             report.at("tokens").get<std::uint64_t>(), report.at("dim").get<std::uint64_t>(),
             report.at("device").at("id").get<std::string>(), report.at("device").at("name").get<std::string>());
  const auto& bad = report.at("non_finite");
  if (bad.at("keys") != 0 || bad.at("values") != 0) {
    fmt::print("Not finite: {} numbers in keys, {} in values. NaN was read as 0, infinity as 65504.\n\n",
               bad.at("keys").get<std::uint64_t>(), bad.at("values").get<std::uint64_t>());
  }
  fmt::print("A. Each width: bits per value as stored; |x' - x|^2 / |x|^2 of sealed K and V, and for K also ");
  fmt::print(
      "/ |x - page's mean|^2; RMS error of logits / RMS of logits, both less their query's mean; KL in nats.\n\n");
  fmt::print("| bits | K stored | V stored | K error | K error, centred | V error | logit error | KL |\n");
  fmt::print("|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& row : report.at("widths")) {
    fmt::print("| {} | {:.4g} | {:.4g} | {:.3e} | {:.3e} | {:.3e} | {:.5f} | {:.3e} |\n",
               row.at("bits").get<std::uint32_t>(), number(row, "key_bits_stored"), number(row, "value_bits_stored"),
               number(row, "key_error"), number(row, "key_error_centred"), number(row, "value_error"),
               number(row, "logit_error"), number(row, "kl"));
  }
  fmt::print("\nB. Error of attention's output, |o' - o| / |o|: bits of keys down, of values across.\n\n|  ");
  for (const std::uint32_t bits : kWidths) fmt::print("| V{} ", bits);
  fmt::print("|\n|---");
  for (std::size_t width = 0; width < kWidths.size(); ++width) fmt::print("|---:");
  const auto& outputs = report.at("output_errors");
  for (std::size_t at = 0; at < outputs.size(); ++at) {
    if (at % kWidths.size() == 0) fmt::print("|\n| K{} ", outputs[at].at("key_bits").get<std::uint32_t>());
    fmt::print("| {:.5f} ", number(outputs[at], "output_error"));
  }
  fmt::print("|\n\nC. Options at K{0} and V{0}.\n\n", kWidths[kOptionsWidth]);
  fmt::print("| options | keys sealed | logit error | output error | KL |\n|---|---:|---:|---:|---:|\n");
  for (const auto& row : report.at("options")) {
    fmt::print("| {} | {:.1f}% | {:.5f} | {:.5f} | {:.3e} |\n", row.at("options").get<std::string>(),
               100 * number(row, "sealed_share"), number(row, "logit_error"), number(row, "output_error"),
               number(row, "kl"));
  }
}

void measure_and_print(const Options& options) {
  Device device = Device::open({.device = options.device}).value();
  const std::vector<Capture> captures = read_captures(options);
  const auto& shape = captures.front().keys.shape;
  const Setting setting{shape[0], shape[1], softmax_scale(options, shape[1]), options.tail, options.sinks};
  const Range sealed = setting.sealed(setting.tokens - 1, options.page);
  if (sealed.begin == sealed.end) {
    fail(options.captures, fmt::format("none of {} tokens is sealed for any query", setting.tokens),
         "a longer text, a smaller tail or fewer sinks");
  }
  Meter meter(setting, trials_for(options));
  for (const Capture& capture : captures) meter.add(device, capture);
  const nlohmann::ordered_json json{
      {"command", command_text(options, setting.scale)},
      {"captures", captures.size()},
      {"tokens", setting.tokens},
      {"dim", setting.dim},
      {"queries", meter.queries()},
      {"softmax_scale", setting.scale},
      {"device", device_json(device.info())},
      {"non_finite", {{"keys", meter.non_finite_keys()}, {"values", meter.non_finite_values()}}},
      {"widths", widths_json(meter, setting.dim)},
      {"output_errors", outputs_json(meter)},
      {"options", options_json(meter)}};
  if (options.output == "json") {
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    print_markdown(json);
  }
}

}  // namespace

void add_distort(CLI::App& app, Invocation&) {
  CLI::App* const command =
      app.add_subcommand("distort", "Say what sealed pages do to attention on recorded queries, keys and values");
  const auto options = std::make_shared<Options>();
  command->add_option("CAPTURES", options->captures, "Folder of NAME_q.npy, NAME_k.npy and NAME_v.npy, f16")
      ->required()
      ->type_name("FOLDER");
  take_one_of(command->add_option("-o,--output", options->output, "How to print it"), {"md", "json"});
  add_device(*command, options->device, "Where pages are sealed, e.g. vulkan:0");
  command->add_option("--page", options->page, "Tokens of a page: 64 or 128")->check(CLI::IsMember({64, 128}));
  command->add_option("--tail", options->tail, "Newest tokens, which stay as they are")->check(whole_number);
  command->add_option("--sinks", options->sinks, "First tokens, which stay as they are")->check(whole_number);
  command->add_option("--scale", options->scale, "Factor of logits; else of index.json, else 1 / sqrt(dim)");
  command->callback([options] {
    if (options->scale && !is_scale(*options->scale)) throw CLI::ValidationError("--scale", "must be positive");
    measure_and_print(*options);
  });
}

}  // namespace rota::tool
