#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "report/chart.h"
#include "report/page.h"

// What the page says about the files of `rota bench`.

namespace rota::tool {
namespace {

// More would be too much to look at; the table has all.
constexpr std::size_t kMostPanels = 8, kMostSeries = 10, kMostBars = 24;
constexpr std::size_t kMostNamesWithThreads = 8;  // in one chart; else a chart per number of threads

struct Entry {
  std::size_t file;
  const BenchRow* row;
};

// One thing that a measurement was set to.
struct Said {
  std::uint64_t order = 0;
  std::string text{};
  auto operator<=>(const Said&) const = default;
};
constexpr std::size_t kThreads = 9;  // in a setting: the last
using Setting = std::array<Said, kThreads + 1>;

Setting setting_of(const BenchRow& row) {
  const auto number = [](std::string_view name, std::uint64_t count) {
    return Said{count, fmt::format("{} {}", name, count)};
  };
  const auto many = [](const std::optional<std::uint64_t>& count, std::string_view noun) {
    return count ? Said{*count, counted(*count, noun)} : Said{};
  };
  const std::uint64_t value_dim = row.value_dim.value_or(row.head_dim);
  return {Said{0, row.device},
          Said{0, row.model},
          number("head_dim", row.head_dim),
          value_dim == row.head_dim ? Said{} : number("value_dim", value_dim),
          many(row.kv_heads, "KV head"),
          row.group ? number("group", *row.group) : Said{},
          row.window ? number("window", *row.window) : Said{},
          many(row.rows, "row"),
          many(row.sequences, "sequence"),
          many(row.threads, "thread")};
}

std::string pair_name(const BenchRow& row) { return codec_pair(row.k, row.v); }

struct Panel {
  std::string title;
  std::vector<Entry> entries;
};

std::string time_text(double ms) {
  if (ms < 0.1) return number_text(ms * 1e3) + " µs";
  return ms < 1e4 ? number_text(ms) + " ms" : number_text(ms / 1e3) + " s";
}

std::string percent(double part) { return fmt::format("{}%", number_text(100 * part, 2)); }

// A number of a row, with what its middle half of samples spans.
struct Metric {
  std::optional<double> value;
  Interval spread;
};

Metric time_of(const BenchRow& row) { return {row.median_ms, {row.p25_ms, row.p75_ms}}; }

Metric rate(const std::optional<double>& value, const BenchRow& row) {
  const double at = value.value_or(0);
  return {value, {at * row.median_ms / row.p75_ms, at * row.median_ms / row.p25_ms}};
}
Metric fraction_of(const BenchRow& row) { return rate(row.fraction_of_read, row); }
Metric speedup_of(const BenchRow& row) {
  return rate(row.k == "f16" && row.v == "f16" ? std::nullopt : row.speedup_vs_f16, row);
}

// The rows of one op.
class OpView {
 public:
  OpView(std::string op, std::vector<Entry> entries, const std::vector<Bench>& files,
         const std::map<std::string, std::size_t>& pairs)
      : op_(std::move(op)), entries_(std::move(entries)), files_(files), pairs_(pairs) {
    std::set<std::string> names;
    const Setting first = setting_of(*entries_.front().row);
    for (const Entry& entry : entries_) {
      const Setting setting = setting_of(*entry.row);
      for (std::size_t at = 0; at < setting.size(); ++at) varies_[at] = varies_[at] || setting[at] != first[at];
      names.insert(pair_name(*entry.row) + "\n" + std::to_string(entry.file) + "\n" + setting[kThreads].text);
    }
    threads_in_name_ = varies_[kThreads] && names.size() <= kMostNamesWithThreads;
    for (const Entry& entry : entries_) variants_.insert(variant_of(entry));
    find_panels();
  }

  const std::string& op() const { return op_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Panel>& panels() const { return panels_; }
  std::string_view keys_noun() const { return op_ == "attend" ? "key" : "token"; }
  std::string keys_text(const BenchRow& row) const { return counted(row.keys, keys_noun()); }

  // What all rows have in common; what tells this one's setting from others.
  std::string common_text() const { return texts(*entries_.front().row, false); }
  std::string setting_text(const BenchRow& row) const { return texts(row, true); }

  std::string name_of(const Entry& entry) const {
    std::string name = pair_name(*entry.row);
    if (threads_in_name_) name += ", " + setting_of(*entry.row)[kThreads].text;
    if (files_.size() > 1) name += " · " + files_[entry.file].origin.label;
    return name;
  }
  // Colour and marker tell codecs apart, dashes files and threads.
  Style style_of(const Entry& entry) const {
    const std::size_t pair = pair_index(entry);
    const std::size_t colour = pair == 0 ? 0 : 1 + (pair - 1) % 7;
    const auto variant = std::distance(variants_.begin(), variants_.find(variant_of(entry)));
    return {colour, pair + pair / 7, static_cast<std::size_t>(variant)};
  }
  std::string note_of(const Entry& entry) const {
    const BenchRow& row = *entry.row;
    std::string note = fmt::format("{}, {}: {}, p25 to p75 {} to {}", name_of(entry), keys_text(row),
                                   time_text(row.median_ms), time_text(row.p25_ms), time_text(row.p75_ms));
    if (row.gbps) note += fmt::format(", {} GB/s", number_text(*row.gbps));
    if (row.fraction_of_read) note += fmt::format(", {} of the read speed", number_text(*row.fraction_of_read));
    if (row.speedup_vs_f16) note += fmt::format(", {} times f16's speed", number_text(*row.speedup_vs_f16));
    if (row.noisy) note += ", noisy";
    return note;
  }

 private:
  using Variant = std::pair<std::size_t, std::uint64_t>;

  std::size_t pair_index(const Entry& entry) const { return pairs_.at(pair_name(*entry.row)); }
  Variant variant_of(const Entry& entry) const {
    return {entry.file, threads_in_name_ ? entry.row->threads.value_or(0) : 0};
  }
  std::string texts(const BenchRow& row, bool varying) const {
    std::vector<std::string> parts;
    const Setting setting = setting_of(row);
    for (std::size_t at = 0; at < setting.size(); ++at) {
      if (varies_[at] == varying && !setting[at].text.empty()) parts.push_back(setting[at].text);
    }
    return joined(parts, ", ");
  }

  void find_panels() {
    std::map<Setting, Panel> panels;
    for (const Entry& entry : entries_) {
      Setting setting = setting_of(*entry.row);
      if (threads_in_name_) setting[kThreads] = {};
      Panel& panel = panels[setting];
      panel.entries.push_back(entry);
      if (panel.title.empty()) {
        std::vector<std::string> parts;
        for (std::size_t at = 0; at < setting.size(); ++at) {
          if (varies_[at] && !setting[at].text.empty()) parts.push_back(setting[at].text);
        }
        panel.title = joined(parts, ", ");
      }
    }
    for (auto& [setting, panel] : panels) {
      std::ranges::sort(panel.entries, {}, [&](const Entry& entry) {
        return std::tuple(pair_index(entry), entry.file, entry.row->threads.value_or(0), entry.row->keys);
      });
      panels_.push_back(std::move(panel));
    }
  }

  std::string op_;
  std::vector<Entry> entries_;
  const std::vector<Bench>& files_;
  const std::map<std::string, std::size_t>& pairs_;  // their places in the order of legends
  std::array<bool, kThreads + 1> varies_{};
  bool threads_in_name_ = false;
  std::set<Variant> variants_{};
  std::vector<Panel> panels_{};
};

struct Unit {
  std::string name;
  double per_ms;
};

Unit unit_for(const Panel& panel) {
  double longest = 0;
  for (const Entry& entry : panel.entries) longest = std::max(longest, entry.row->median_ms);
  if (longest < 0.1) return {"µs", 1e3};
  return longest < 1e4 ? Unit{"ms", 1} : Unit{"s", 1e-3};
}

std::set<std::uint64_t> keys_of(const Panel& panel) {
  std::set<std::uint64_t> keys;
  for (const Entry& entry : panel.entries) keys.insert(entry.row->keys);
  return keys;
}

void add_time_lines(Panels& panels, const OpView& view, const Panel& panel) {
  const Unit unit = unit_for(panel);
  LineChart chart{.label = fmt::format("Time of {} against {}s. {}", view.op(), view.keys_noun(), panel.title),
                  .x = {fmt::format("{}s", view.keys_noun()), Scale::logarithmic},
                  .y = {fmt::format("median time per call, {}", unit.name), Scale::logarithmic}};
  if (const auto keys = keys_of(panel); keys.size() <= 8) chart.x.ticks.assign(keys.begin(), keys.end());
  std::string last;
  for (const Entry& entry : panel.entries) {
    const std::string name = view.name_of(entry);
    if (name != last || chart.series.empty()) {
      if (chart.series.size() == kMostSeries) {
        ++panels.rows_left;
        continue;
      }
      chart.series.push_back({name, view.style_of(entry)});
      last = name;
    }
    const BenchRow& row = *entry.row;
    chart.series.back().points.push_back({.x = static_cast<double>(row.keys),
                                          .y = row.median_ms * unit.per_ms,
                                          .spread = Interval{row.p25_ms * unit.per_ms, row.p75_ms * unit.per_ms},
                                          .note = view.note_of(entry),
                                          .hollow = row.noisy});
  }
  panels.add(panel.title, svg(chart));
}

struct Bars {
  Metric (*metric)(const BenchRow&);
  std::string axis_title;
  double factor = 1;
  std::optional<Limit> limit{};
};

void add_bars(Panels& panels, const OpView& view, const Panel& panel, const Bars& bars) {
  BarChart chart{.label = fmt::format("{} of {}. {}", bars.axis_title, view.op(), panel.title),
                 .axis_title = bars.axis_title,
                 .limit = bars.limit};
  std::size_t room = kMostBars;
  const std::set<std::uint64_t> keys = keys_of(panel);
  for (const std::uint64_t key : std::views::reverse(keys)) {
    BarGroup group{counted(key, view.keys_noun())};
    for (const Entry& entry : panel.entries) {
      const Metric metric = bars.metric(*entry.row);
      if (entry.row->keys != key || !metric.value) continue;
      group.bars.push_back({.name = view.name_of(entry),
                            .style = view.style_of(entry),
                            .value = *metric.value * bars.factor,
                            .spread = Interval{metric.spread.low * bars.factor, metric.spread.high * bars.factor},
                            .note = view.note_of(entry),
                            .hollow = entry.row->noisy});
    }
    // Those of the most keys matter most; half a group would mislead.
    if (group.bars.size() > room && !chart.groups.empty()) room = 0;
    const std::size_t drawn = std::min(group.bars.size(), room);
    panels.rows_left += group.bars.size() - drawn;
    room -= drawn;
    group.bars.resize(drawn);
    if (drawn != 0) chart.groups.insert(chart.groups.begin(), std::move(group));
  }
  panels.add(panel.title, svg(chart));
}

// For each panel there is room for; what does not fit is counted.
template <class Add>
void for_each_panel(Panels& panels, const OpView& view, Metric (*metric)(const BenchRow&), Add add) {
  for (const Panel& panel : view.panels()) {
    const auto rows =
        std::ranges::count_if(panel.entries, [&](auto& entry) { return metric(*entry.row).value.has_value(); });
    if (rows == 0) continue;
    if (panels.figures.size() == kMostPanels) {
      panels.rows_left += static_cast<std::size_t>(rows);
    } else {
      add(panel);
    }
  }
}

// The read speed, if all rows of a panel agree on it to 3 digits.
std::string read_speed_text(const Panel& panel) {
  std::set<std::string> speeds;
  for (const Entry& entry : panel.entries) {
    if (entry.row->read_gbps) speeds.insert(number_text(*entry.row->read_gbps));
  }
  return speeds.size() == 1 ? fmt::format("the memory's read speed, {} GB/s", *speeds.begin())
                            : "the memory's read speed";
}

Section charts_of(const OpView& view, std::size_t& count) {
  const bool any_noisy = std::ranges::any_of(view.entries(), [](const Entry& entry) { return entry.row->noisy; });
  const std::string marks =
      std::string("Whiskers span p25 to p75.") + (any_noisy ? " Hollow marks are noisy rows." : "");
  Panels time{"Time per call", "Lower is faster. " + marks};
  for_each_panel(time, view, time_of, [&](const Panel& panel) {
    if (keys_of(panel).size() > 1) return add_time_lines(time, view, panel);
    const Unit unit = unit_for(panel);
    add_bars(time, view, panel, {time_of, fmt::format("median time per call, {}", unit.name), unit.per_ms});
  });
  Panels fraction{
      "How close to the memory's speed",
      "Bytes that the call must read and write, by its time, by what plain reading of memory reaches here. " + marks};
  for_each_panel(fraction, view, fraction_of, [&](const Panel& panel) {
    add_bars(fraction, view, panel, {fraction_of, "fraction of read speed", 1, Limit{1, read_speed_text(panel)}});
  });
  Panels speedup{"Speed relative to f16", "How many times as fast as the same call on f16. " + marks};
  for_each_panel(speedup, view, speedup_of, [&](const Panel& panel) {
    add_bars(speedup, view, panel, {speedup_of, "times the speed of f16", 1, Limit{1, "as fast as f16"}});
  });
  Section section{view.op(), "bench: " + view.op(), {}};
  if (const std::string common = view.common_text(); !common.empty()) {
    section.html += fmt::format("<p class=\"common\">All rows: {}.</p>\n", escaped(common));
  }
  section.html += "<div class=\"kinds\">\n";
  for (const Panels* panels : {&time, &fraction, &speedup}) {
    section.html += panels->html();
    count += panels->figures.size();
  }
  section.html += "</div>\n";
  return section;
}

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string in_brackets(const std::string& text) { return text.empty() ? text : " (" + text + ")"; }

// Of one op in one file.
class Findings {
 public:
  Findings(const OpView& view, std::size_t file, std::string prefix, std::vector<std::string>& said)
      : view_(view), prefix_(std::move(prefix)), said_(said) {
    for (const Entry& entry : view.entries()) {
      if (entry.file == file) rows_.push_back(entry.row);
    }
  }

  void say() {
    if (rows_.empty()) return;
    if (!say_speedup()) say_rate();
    say_slower();
  }

 private:
  void add(const std::string& text) { said_.push_back(prefix_ + text); }

  static bool has_speedup(const BenchRow* row) { return speedup_of(*row).value.has_value(); }

  // Among the rows with the most keys, the one that `better` likes best.
  template <class Has, class Value>
  const BenchRow* best_of_longest(Has has, Value value) const {
    const BenchRow* best = nullptr;
    for (const BenchRow* row : rows_) {
      if (!has(row)) continue;
      if (best == nullptr || std::pair(row->keys, value(row)) > std::pair(best->keys, value(best))) best = row;
    }
    return best;
  }

  bool say_speedup() {
    const BenchRow* const best =
        best_of_longest(has_speedup, [](const BenchRow* row) { return row->speedup_vs_f16.value_or(0); });
    if (best == nullptr) return false;
    const double speedup = best->speedup_vs_f16.value_or(0);
    std::string text =
        fmt::format("{} {} {} times as fast as f16 at {}{}", pair_name(*best), verb(), number_text(speedup, 2),
                    view_.keys_text(*best), in_brackets(view_.setting_text(*best)));
    if (best->fraction_of_read) {
      text += fmt::format(" and moves bytes at {} of the memory's read speed", number_text(*best->fraction_of_read, 2));
    }
    std::vector<double> all;
    for (const BenchRow* row : rows_) {
      if (has_speedup(row) && row->k == best->k && row->v == best->v) all.push_back(row->speedup_vs_f16.value_or(0));
    }
    if (all.size() > 1) {
      text += fmt::format("; over all {} of its rows, {} to {} times, {} in the middle", all.size(),
                          number_text(std::ranges::min(all), 2), number_text(std::ranges::max(all), 2),
                          number_text(middle_of(all), 2));
    }
    add(text + ".");
    return true;
  }

  void say_rate() {
    const BenchRow* const best = best_of_longest([](const BenchRow* row) { return row->gbps.has_value(); },
                                                 [](const BenchRow* row) { return row->gbps.value_or(0); });
    if (best == nullptr) return;
    std::string text = fmt::format("{} of {} takes {} for {}{}, which is {} GB/s", view_.op(), pair_name(*best),
                                   time_text(best->median_ms), view_.keys_text(*best),
                                   in_brackets(view_.setting_text(*best)), number_text(best->gbps.value_or(0)));
    if (best->fraction_of_read) {
      text += fmt::format(", {} of the memory's read speed", number_text(*best->fraction_of_read, 2));
    }
    add(text + ".");
  }

  void say_slower() {
    std::size_t count = 0, slower = 0;
    const BenchRow* slowest = nullptr;
    for (const BenchRow* row : rows_) {
      if (!has_speedup(row)) continue;
      ++count;
      const auto speed = [](const BenchRow* one) { return one->speedup_vs_f16.value_or(0); };
      slower += speed(row) < 1 ? 1U : 0U;
      if (slowest == nullptr || speed(row) < speed(slowest)) slowest = row;
    }
    if (slower == 0) return;
    add(fmt::format("{} of {} rows of {} are slower than f16, the slowest {} at {} of its speed with {}{}.", slower,
                    count, view_.op(), pair_name(*slowest), number_text(slowest->speedup_vs_f16.value_or(0), 2),
                    view_.keys_text(*slowest), in_brackets(view_.setting_text(*slowest))));
  }

  std::string verb() const { return view_.op() == "attend" ? "attends" : "runs in " + view_.op(); }

  const OpView& view_;
  std::string prefix_;
  std::vector<std::string>& said_;
  std::vector<const BenchRow*> rows_{};
};

void say_spread(const Bench& file, const std::string& prefix, std::vector<std::string>& findings) {
  std::vector<double> spreads;
  for (const BenchRow& row : file.rows) spreads.push_back((row.p75_ms - row.p25_ms) / row.median_ms);
  if (spreads.empty()) return;
  findings.push_back(prefix +
                     (spreads.size() == 1
                          ? fmt::format("The middle half of samples spans {} of the median.", percent(spreads[0]))
                          : fmt::format("The middle half of a row's samples spans {} of its median in the typical "
                                        "row, {} in the widest.",
                                        percent(middle_of(spreads)), percent(std::ranges::max(spreads)))));
}

// Each later file with the first one, over rows that both have.
void say_comparisons(const std::vector<Bench>& files, std::vector<std::string>& findings) {
  const auto key_of = [](const BenchRow& row) { return std::tuple(row.op, row.k, row.v, row.keys, setting_of(row)); };
  std::map<decltype(key_of(BenchRow{})), double> first;
  for (const BenchRow& row : files.front().rows) first.emplace(key_of(row), row.median_ms);
  for (std::size_t file = 1; file < files.size(); ++file) {
    double sum = 0, least = 0, most = 0;
    std::size_t count = 0;
    for (const BenchRow& row : files[file].rows) {
      const auto found = first.find(key_of(row));
      if (found == first.end()) continue;
      const double ratio = row.median_ms / found->second;
      least = count == 0 ? ratio : std::min(least, ratio);
      most = std::max(most, ratio);
      sum += std::log(ratio);
      ++count;
    }
    const std::string &label = files[file].origin.label, &base = files.front().origin.label;
    if (count == 0) {
      findings.push_back(fmt::format("{} has no row in common with {}.", label, base));
    } else {
      findings.push_back(fmt::format("{} takes {} of the time of {} (geometric mean of {}; {} to {}).", label,
                                     number_text(std::exp(sum / static_cast<double>(count))), base,
                                     counted(count, "shared row"), number_text(least), number_text(most)));
    }
  }
}

// What the row's place for a field holds, as the page shows it.
struct CellText {
  const BenchField& field;

  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(std::uint64_t count) const { return number_text(std::optional(count)); }
  std::string operator()(const std::optional<std::uint64_t>& count) const { return number_text(count); }
  std::string operator()(double number) const { return number_text(number, field.page.unit == "ms" ? 4 : 3); }
  std::string operator()(const std::optional<double>& number) const { return number ? (*this)(*number) : ""; }
  std::string operator()(bool flag) const { return flag ? std::string(field.page.name) : ""; }
};

constexpr std::string_view kTableOrder[] = {
    "op",     "k",      "v",     "device",    "model",     "head_dim",         "value_dim",      "kv_heads", "group",
    "window", "keys",   "rows",  "sequences", "threads",   "samples",          "median_ms",      "min_ms",   "p25_ms",
    "p75_ms", "spread", "bytes", "gbps",      "read_gbps", "fraction_of_read", "speedup_vs_f16", "noisy"};

Section table_of(const Bench& file, std::size_t index, bool named) {
  HtmlTable table;
  std::vector<const BenchField*> fields;
  for (const std::string_view key : kTableOrder) fields.push_back(&bench_field(key));
  for (const BenchField* field : fields) {
    const bool is_words = std::holds_alternative<std::string BenchRow::*>(field->member) ||
                          std::holds_alternative<bool BenchRow::*>(field->member);
    table.add_column(field->page.title(), is_words ? HtmlTable::Align::left : HtmlTable::Align::right);
  }
  for (const BenchRow& row : file.rows) {
    std::vector<std::string> cells;
    for (const BenchField* field : fields) {
      cells.push_back(std::visit([&](const auto member) { return CellText{*field}(row.*member); }, field->member));
    }
    table.add_row(std::move(cells));
  }
  const std::string title = named ? "bench: " + file.origin.label : "bench";
  return {fmt::format("table-bench-{}", index + 1), title, table.html("keys of store, seal and rope are tokens")};
}

// The order of legends; f16 is the first, and has the axes' colour, whether it is there or not.
std::map<std::string, std::size_t> pairs_of(const std::vector<Bench>& files) {
  using Pair = std::pair<std::string, std::string>;
  const auto less = [](const Pair& a, const Pair& b) {
    return a.first == b.first ? codec_less(a.second, b.second) : codec_less(a.first, b.first);
  };
  std::set<Pair, decltype(less)> pairs(less);
  for (const Bench& file : files) {
    for (const BenchRow& row : file.rows) pairs.insert({row.k, row.v});
  }
  std::map<std::string, std::size_t> places{{"f16", 0}};
  for (const auto& [k, v] : pairs) places.emplace(codec_pair(k, v), places.size());
  return places;
}

}  // namespace

PagePart bench_part(const std::vector<Bench>& files) {
  PagePart part;
  const auto pairs = pairs_of(files);
  const auto prefix_of = [&](const Bench& file) { return files.size() > 1 ? file.origin.label + ": " : std::string(); };
  for (const char* op : {"attend", "seal", "store", "rope"}) {
    std::vector<Entry> entries;
    for (std::size_t file = 0; file < files.size(); ++file) {
      for (const BenchRow& row : files[file].rows) {
        if (row.op == op) entries.push_back({file, &row});
      }
    }
    if (entries.empty()) continue;
    const OpView view(op, std::move(entries), files, pairs);
    part.charts.push_back(charts_of(view, part.chart_count));
    for (std::size_t file = 0; file < files.size(); ++file) {
      Findings(view, file, prefix_of(files[file]), part.findings).say();
    }
  }
  for (std::size_t index = 0; index < files.size(); ++index) {
    const Bench& file = files[index];
    say_spread(file, prefix_of(file), part.findings);
    const auto noisy = static_cast<std::size_t>(std::ranges::count_if(file.rows, &BenchRow::noisy));
    if (file.noisy) {
      part.warnings.push_back(fmt::format(
          "{}The machine was not quiet{}: small differences mean nothing.", prefix_of(file),
          file.read_spread ? fmt::format(" (plain reading of memory varied by {})", percent(*file.read_spread)) : ""));
    }
    if (noisy != 0) {
      part.warnings.push_back(fmt::format("{}{} of {} are noisy: their samples differ too much.", prefix_of(file),
                                          noisy, counted(file.rows.size(), "row")));
    }
    if (file.rows.empty()) {
      part.warnings.push_back(fmt::format("{} has no rows: nothing was measured.", file.origin.label));
      continue;
    }
    part.tables.push_back(table_of(file, index, files.size() > 1));
  }
  if (files.size() > 1) say_comparisons(files, part.findings);
  return part;
}

}  // namespace rota::tool
