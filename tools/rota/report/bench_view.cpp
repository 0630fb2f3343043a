#include "report/bench_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace rota::tool {
namespace {

constexpr std::size_t kMostNamesWithThreads = 8;  // in one chart; else a chart per number of threads

BenchMetric rate(const std::optional<double>& value, const BenchRow& row) {
  const double at = value.value_or(0);
  return {value, {at * row.median_ms / row.p75_ms, at * row.median_ms / row.p25_ms}};
}

}  // namespace

BenchSetting setting_of(const BenchRow& row) {
  const auto number = [](std::string_view name, std::uint64_t count) {
    return BenchSaid{count, fmt::format("{} {}", name, count)};
  };
  const auto many = [](const std::optional<std::uint64_t>& count, std::string_view noun) {
    return count ? BenchSaid{*count, counted(*count, noun)} : BenchSaid{};
  };
  const std::uint64_t head_dim = row.head_dim.value_or(0), value_dim = row.value_dim.value_or(head_dim);
  return {BenchSaid{0, row.device},
          BenchSaid{0, row.model},
          row.scope == kModelScope ? BenchSaid{1, "all layers"} : BenchSaid{},
          head_dim > 0 ? number("head_dim", head_dim) : BenchSaid{},
          value_dim == head_dim ? BenchSaid{} : number("value_dim", value_dim),
          many(row.kv_heads, "KV head"),
          row.group ? number("group", *row.group) : BenchSaid{},
          row.window ? number("window", *row.window) : BenchSaid{},
          many(row.rows, "row"),
          many(row.sequences, "sequence"),
          many(row.threads, "thread")};
}

std::string pair_name(const BenchRow& row) { return codec_pair(row.k, row.v); }

BenchMetric time_of(const BenchRow& row) { return {row.median_ms, {row.p25_ms, row.p75_ms}}; }

BenchMetric fraction_of(const BenchRow& row) { return rate(row.fraction_of_read, row); }

BenchMetric speedup_of(const BenchRow& row) {
  return rate(row.k == "f16" && row.v == "f16" ? std::nullopt : row.speedup_vs_f16, row);
}

BenchView::BenchView(std::string op, std::vector<BenchEntry> entries, const std::vector<Bench>& files,
                     const std::map<std::string, std::size_t>& pairs)
    : op_(std::move(op)), entries_(std::move(entries)), files_(files), pairs_(pairs) {
  std::set<std::string> names;
  const BenchSetting first = setting_of(*entries_.front().row);
  for (const BenchEntry& entry : entries_) {
    const BenchSetting setting = setting_of(*entry.row);
    for (std::size_t at = 0; at < setting.size(); ++at) varies_[at] = varies_[at] || setting[at] != first[at];
    names.insert(pair_name(*entry.row) + "\n" + std::to_string(entry.file) + "\n" + setting[kThreads].text);
  }
  threads_in_name_ = varies_[kThreads] && names.size() <= kMostNamesWithThreads;
  for (const BenchEntry& entry : entries_) variants_.insert(variant_of(entry));
  find_panels();
}

std::string BenchView::keys_text(const BenchRow& row) const { return counted(row.keys, keys_noun()); }

std::string BenchView::name_of(const BenchEntry& entry) const {
  std::string name = pair_name(*entry.row);
  if (threads_in_name_) name += ", " + setting_of(*entry.row)[kThreads].text;
  if (files_.size() > 1) name += " · " + files_[entry.file].origin.label;
  return name;
}

Style BenchView::style_of(const BenchEntry& entry) const {
  const std::size_t pair = pair_index(entry);
  const std::size_t colour = pair == 0 ? 0 : 1 + (pair - 1) % 7;
  const auto variant = std::distance(variants_.begin(), variants_.find(variant_of(entry)));
  return {colour, pair + pair / 7, static_cast<std::size_t>(variant)};
}

std::string BenchView::note_of(const BenchEntry& entry) const {
  const BenchRow& row = *entry.row;
  std::string note = fmt::format("{}, {}: {}, p25 to p75 {} to {}", name_of(entry), keys_text(row),
                                 time_text(row.median_ms), time_text(row.p25_ms), time_text(row.p75_ms));
  if (row.gbps) note += fmt::format(", {} GB/s", number_text(*row.gbps));
  if (row.fraction_of_read) note += fmt::format(", {} of the read speed", number_text(*row.fraction_of_read));
  if (row.speedup_vs_f16) note += fmt::format(", {} times f16's speed", number_text(*row.speedup_vs_f16));
  if (row.noisy) note += ", noisy";
  return note;
}

std::string BenchView::texts(const BenchSetting& setting, Which which) const {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < setting.size(); ++at) {
    if (varies_[at] == (which == Which::varying) && !setting[at].text.empty()) parts.push_back(setting[at].text);
  }
  return joined(parts, ", ");
}

void BenchView::find_panels() {
  std::map<BenchSetting, BenchPanel> panels;
  for (const BenchEntry& entry : entries_) {
    BenchSetting setting = setting_of(*entry.row);
    if (threads_in_name_) setting[kThreads] = {};
    BenchPanel& panel = panels[setting];
    panel.entries.push_back(entry);
    if (panel.title.empty()) panel.title = texts(setting, Which::varying);
  }
  for (auto& [setting, panel] : panels) {
    std::ranges::sort(panel.entries, {}, [&](const BenchEntry& entry) {
      return std::tuple(pair_index(entry), entry.file, entry.row->threads.value_or(0), entry.row->keys);
    });
    panels_.push_back(std::move(panel));
  }
}

}  // namespace rota::tool
