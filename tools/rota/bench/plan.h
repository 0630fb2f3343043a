#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "cli/options.h"
#include "model/model.h"

// What `rota bench` is asked to measure.

namespace rota::tool {

struct BenchOptions {
  std::string op{};
  CodecLists codecs{};
  std::string model{};
  std::optional<std::uint64_t> kv_heads{}, group{}, head_dim{}, value_dim{}, window{};
  std::vector<std::uint64_t> keys{}, rows{1}, sequences{1}, threads{};
  std::uint64_t tail = 128;
  std::optional<std::uint64_t> rotate_mib{};
  std::optional<double> seconds{};
  std::string pages = "contiguous", trace{};
  std::string device = "cpu";
  Output output = Output::text;

  double seconds_in_all() const { return seconds.value_or(30); }
};

// One row to be.
struct BenchCase {
  BenchShape shape;
  std::optional<std::uint64_t> layers = {};  // of the model, that have this shape
  std::size_t device = 0;                    // which of the opened ones
};

bool is_f16(const CodecPair& pair);

// The model that options name, if they do.
std::optional<Model> named_model(const BenchOptions& options);

// For each device, each shape of the model's layers, or the one that options say. Speeds are relative to f16: where
// there is no f16 among codecs, it comes first. Only seal has none.
std::vector<BenchCase> bench_cases(const BenchOptions& options, const std::optional<Model>& model, std::size_t devices);

// Of `rota bench call`, which options describe whole.
std::vector<BenchShape> call_shapes(const BenchOptions& options);

}  // namespace rota::tool
