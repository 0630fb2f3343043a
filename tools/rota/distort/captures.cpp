#include "distort/captures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <utility>

#include "rota/codec.h"
#include "rota/result.h"

namespace rota::tool {
namespace {

// Errors end the command where they are found; run() says them.
[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, std::string_view wanted) {
  throw BadResult({Errc::io, fmt::format("{}: {}; wanted {}", path.string(), what, wanted)});
}

[[noreturn]] void fail_shape(const std::filesystem::path& path, const Array& array, std::string_view wanted) {
  fail(path, "the shape is " + shape_text(array.shape), wanted);
}

// As seal reads what f16 does not hold. Exact attention reads it so, too: else it had no result to compare with.
std::uint64_t make_finite(Array& array) {
  constexpr float kLargest = 65504;
  // Numbers below it are rounded down to the largest.
  constexpr float kOverflow = 65520;
  std::uint64_t changed = 0;
  for (float& value : array.values) {
    if (std::abs(value) < kOverflow) continue;
    ++changed;
    value = std::isnan(value) ? 0 : std::copysign(kLargest, value);
  }
  return changed;
}

void check_finite(const std::filesystem::path& path, const Array& array) {
  const auto bad = std::ranges::find_if(array.values, [](float value) { return !std::isfinite(value); });
  if (bad == array.values.end()) return;
  fail(path, fmt::format("value {} is not finite", bad - array.values.begin()), "finite queries");
}

// "a_k" has a file of either kind; .npy is taken where there are both.
std::optional<std::filesystem::path> find_array(const std::filesystem::path& folder, const std::string& stem) {
  for (const char* ending : {".npy", ".raw"}) {
    std::filesystem::path path = folder / (stem + ending);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return {};
}

Array read_array(const std::filesystem::path& path) {
  return (path.extension() == ".raw" ? read_raw(path) : read_npy(path)).value();
}

struct CapturePaths {
  std::filesystem::path queries, keys, values;
};

Capture read_capture(const CapturePaths& paths) {
  Capture capture{paths.keys.string(), paths.values.string(), read_array(paths.queries), read_array(paths.keys),
                  read_array(paths.values)};
  const auto& keys = capture.keys.shape;
  if (keys.size() != 2 || keys[0] <= kFirstQuery) {
    fail_shape(paths.keys, capture.keys, fmt::format("(tokens, dim), more than {} tokens", kFirstQuery));
  }
  if (const Status status = check_head_dim(keys[1]); !status) {
    throw BadResult({Errc::io, fmt::format("{}: {}", paths.keys.string(), status.error().message)});
  }
  if (capture.values.shape != keys) {
    fail_shape(paths.values, capture.values, fmt::format("the keys' {}", shape_text(keys)));
  }
  const auto& queries = capture.queries.shape;
  if (queries.size() != 3 || queries[0] != keys[0] || queries[1] == 0 || queries[2] != keys[1]) {
    fail_shape(paths.queries, capture.queries, fmt::format("({}, query heads, {})", keys[0], keys[1]));
  }
  check_finite(paths.queries, capture.queries);
  capture.non_finite_keys = make_finite(capture.keys);
  capture.non_finite_values = make_finite(capture.values);
  return capture;
}

// All that has queries, keys and values, by name.
std::vector<CapturePaths> find_captures(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    const std::filesystem::path path = entry->path();
    const std::string stem = path.stem().string();
    const bool is_array = path.extension() == ".npy" || path.extension() == ".raw";
    if (is_array && stem.ends_with("_k")) names.push_back(stem.substr(0, stem.size() - 2));
  }
  if (failure) fail(folder, failure.message(), "a folder of captures");
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  std::vector<CapturePaths> found;
  for (const std::string& name : names) {
    const auto queries = find_array(folder, name + "_q");
    const auto keys = find_array(folder, name + "_k");
    const auto values = find_array(folder, name + "_v");
    if (queries && keys && values) found.push_back({*queries, *keys, *values});
  }
  if (found.empty()) fail(folder, "no captures", "NAME_q, NAME_k and NAME_v, each .npy, or .raw with a .json");
  return found;
}

double recorded_scale(const std::filesystem::path& folder, std::uint64_t dim) {
  const double usual = 1 / std::sqrt(static_cast<double>(dim));
  const std::filesystem::path path = folder / "index.json";
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return usual;
  if (!std::filesystem::is_regular_file(path, failure)) fail(path, "is no file", "JSON");
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path, "is no JSON object", "one, with \"softmax_scale\" or without");
  const auto scale = json.find("softmax_scale");
  if (scale == json.end()) return usual;
  const double number = scale->is_number() ? scale->get<double>() : 0;
  if (!std::isfinite(number) || number <= 0) fail(path, "softmax_scale is no positive number", "the factor of logits");
  return number;
}

// "captures" of "captures/" and of "./captures".
std::string folder_name(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, ignored);
  return whole.filename().empty() ? folder.string() : whole.filename().string();
}

// The standard's engine gives the same bits everywhere; its distributions do not.
class Random {
 public:
  float gaussian() { return static_cast<float>(normal()); }
  float laplace() {
    const double uniform = between_0_and_1() - 0.5;
    return static_cast<float>(std::copysign(std::log(1 - 2 * std::abs(uniform)), uniform) / -std::numbers::sqrt2);
  }
  float student_t3() {
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += std::pow(normal(), 2);
    return static_cast<float>(normal() / std::sqrt(squares));  // of variance 3, by the root of 3
  }

 private:
  double between_0_and_1() { return (static_cast<double>(engine_() >> 11U) + 0.5) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(between_0_and_1()));
    return radius * std::cos(2 * std::numbers::pi * between_0_and_1());
  }

  std::mt19937_64 engine_{1};
};

struct Distribution {
  float (Random::*draw)();
  double entropy_power;  // e^(2 h) / (2 pi e), h the entropy in nats at variance 1
};

Distribution distribution_named(std::string_view name) {
  if (name == "laplace") return {&Random::laplace, std::numbers::e / std::numbers::pi};
  if (name == "student_t3") return {&Random::student_t3, 0.6774};
  return {&Random::gaussian, 1};
}

}  // namespace

Status check_head_dim(std::uint64_t dim) {
  // What no format has room for is refused as the largest number is.
  const auto head_dim = static_cast<std::uint32_t>(std::min<std::uint64_t>(dim, UINT32_MAX));
  return check(PageFormat{.codec = turbo(4), .side = KvSide::keys, .head_dim = head_dim});
}

Source read_source(const std::filesystem::path& folder) {
  Source source{.name = folder_name(folder), .captures = {}};
  for (const CapturePaths& paths : find_captures(folder)) {
    source.captures.push_back(read_capture(paths));
    const auto& shape = source.captures.front().keys.shape;
    const Array& keys = source.captures.back().keys;
    if (keys.shape != shape) fail_shape(paths.keys, keys, "the other captures' " + shape_text(shape));
  }
  source.softmax_scale = recorded_scale(folder, source.dim());
  return source;
}

Source random_source(const std::string& distribution, std::uint64_t dim) {
  constexpr std::uint64_t kCaptures = 4, kTokens = 512, kQueryHeads = 1;
  const Distribution chosen = distribution_named(distribution);
  Source source{.name = distribution,
                .captures = {},
                .softmax_scale = 1 / std::sqrt(static_cast<double>(dim)),
                .entropy_power = chosen.entropy_power};
  Random random;
  const auto array = [&](std::vector<std::uint64_t> shape, float (Random::*draw)()) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    Array made{std::move(shape), std::vector<float>(count)};
    std::ranges::generate(made.values, [&] { return (random.*draw)(); });
    return made;
  };
  for (std::uint64_t capture = 0; capture < kCaptures; ++capture) {
    source.captures.push_back({distribution, distribution, array({kTokens, kQueryHeads, dim}, &Random::gaussian),
                               array({kTokens, dim}, chosen.draw), array({kTokens, dim}, chosen.draw)});
  }
  return source;
}

}  // namespace rota::tool
