#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/table.h"

// What `rota bench` measures, described once: its JSON and tables, the schema of that JSON and the reader of
// `rota report` are made from this.

namespace rota::tool {

inline constexpr std::array<std::string_view, 4> kBenchOps{"attend", "rope", "seal", "store"};

// What a row's times and bytes are of: one call, for one layer, or one call for each layer of a model.
inline constexpr std::string_view kLayerScope = "layer", kModelScope = "model";

// What was measured. rota bench knows all of it but for what does not apply; a file that is read may know less.
struct BenchRow {
  std::string op, k, v;
  std::string device, model;
  std::string scope{kLayerScope};
  std::uint64_t keys = 0;
  // Of a model, what its layers have in common.
  std::optional<std::uint64_t> head_dim, value_dim, kv_heads, group, window;
  std::optional<std::uint64_t> layers, rows, sequences, threads;
  std::optional<std::uint64_t> samples, calls_per_sample, bytes;
  double median_ms = 0, p25_ms = 0, p75_ms = 0;
  std::optional<double> min_ms, spread, gbps, read_gbps, fraction_of_read, speedup_vs_f16, tokens_per_second;
  bool noisy = false;
};

// What a value may be, in what rota bench prints. Null is what does not apply.
enum class BenchValue {
  op,      // one of kBenchOps
  codec,   // one of kCodecs
  device,  // "cpu", "vulkan:0"
  scope,   // kLayerScope or kModelScope
  name_or_null,
  count,  // at least 1
  count_or_null,
  count_of_layer,  // as count; null where layers of a model differ
  samples,         // as many as a report has at least
  bytes,           // at least 1
  positive,        // a number
  positive_or_null,
  share,  // a number, 0 or more
  flag,
};

// What `rota report` does with a field of a file.
enum class Reading { needed, optional, ignored };

using BenchMember =
    std::variant<std::string BenchRow::*, std::uint64_t BenchRow::*, std::optional<std::uint64_t> BenchRow::*,
                 double BenchRow::*, std::optional<double> BenchRow::*, bool BenchRow::*>;

struct BenchField {
  // In text, Markdown and CSV; what has no title is only in JSON.
  struct InTable {
    std::string_view title, format = {};  // as Column has them
  };
  // In the table of `rota report`.
  struct OnPage {
    std::string_view name, unit = {};

    std::string title() const;  // "median, ms"
  };

  std::string_view key;  // of JSON, and the head of CSV
  BenchMember member;
  BenchValue value;
  Reading reading;
  InTable table = {};
  OnPage page = {};
};

// In the order of JSON and of columns.
std::span<const BenchField> bench_fields();

// Precondition: there is one.
const BenchField& bench_field(std::string_view key);

std::vector<Column> bench_columns();
Json bench_json(const BenchRow& row);

}  // namespace rota::tool
