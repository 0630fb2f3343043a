#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/chart.h"
#include "report/data.h"
#include "report/words.h"

// Rows of `rota bench` as the page looks at them: op by op, and in panels of those that may be compared.

namespace rota::tool {

struct BenchEntry {
  std::size_t file;
  const BenchRow* row;
};

// One thing that a measurement was set to.
struct BenchSaid {
  std::uint64_t order = 0;
  std::string text{};
  auto operator<=>(const BenchSaid&) const = default;
};
inline constexpr std::size_t kThreads = 10;  // in a setting: the last
using BenchSetting = std::array<BenchSaid, kThreads + 1>;

BenchSetting setting_of(const BenchRow& row);

// "turbo4", or "turbo4 / turbo2"
std::string pair_name(const BenchRow& row);

// A number of a row, with what its middle half of samples spans.
struct BenchMetric {
  std::optional<double> value;
  Interval spread;
};

BenchMetric time_of(const BenchRow& row);
BenchMetric fraction_of(const BenchRow& row);
BenchMetric speedup_of(const BenchRow& row);  // nothing for f16 itself

// Rows that differ only in codecs, keys, files and perhaps threads.
struct BenchPanel {
  std::string title;
  std::vector<BenchEntry> entries;
};

// The rows of one op. Refers to files and pairs.
class BenchView {
 public:
  // Pairs have their places in the order of legends.
  BenchView(std::string op, std::vector<BenchEntry> entries, const std::vector<Bench>& files,
            const std::map<std::string, std::size_t>& pairs);

  const std::string& op() const { return op_; }
  const std::vector<BenchEntry>& entries() const { return entries_; }
  const std::vector<BenchPanel>& panels() const { return panels_; }
  std::string_view keys_noun() const { return op_ == "attend" ? "key" : "token"; }
  std::string keys_text(const BenchRow& row) const;

  // What all rows have in common; what tells this one's setting from others.
  std::string common_text() const { return texts(setting_of(*entries_.front().row), Which::common); }
  std::string setting_text(const BenchRow& row) const { return texts(setting_of(row), Which::varying); }

  std::string name_of(const BenchEntry& entry) const;
  // Colour and marker tell codecs apart, dashes files and threads.
  Style style_of(const BenchEntry& entry) const;
  std::string note_of(const BenchEntry& entry) const;

 private:
  using Variant = std::pair<std::size_t, std::uint64_t>;
  enum class Which { common, varying };

  std::size_t pair_index(const BenchEntry& entry) const { return pairs_.at(pair_name(*entry.row)); }
  Variant variant_of(const BenchEntry& entry) const {
    return {entry.file, threads_in_name_ ? entry.row->threads.value_or(0) : 0};
  }
  std::string texts(const BenchSetting& setting, Which which) const;
  void find_panels();

  std::string op_;
  std::vector<BenchEntry> entries_;
  const std::vector<Bench>& files_;
  const std::map<std::string, std::size_t>& pairs_;
  std::array<bool, kThreads + 1> varies_{};
  bool threads_in_name_ = false;
  std::set<Variant> variants_{};
  std::vector<BenchPanel> panels_{};
};

}  // namespace rota::tool
