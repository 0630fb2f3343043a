#include "report/bench_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include "report/chart.h"

namespace rota::tool {
namespace {

// More would be too much to look at; the table has all.
constexpr std::size_t kMostSeries = 10, kMostBars = 24;

struct Unit {
  std::string name;
  double per_ms;
};

Unit unit_for(const BenchPanel& panel) {
  double longest = 0;
  for (const BenchEntry& entry : panel.entries) longest = std::max(longest, entry.row->median_ms);
  if (longest < 0.1) return {"µs", 1e3};
  return longest < 1e4 ? Unit{"ms", 1} : Unit{"s", 1e-3};
}

std::set<std::uint64_t> keys_of(const BenchPanel& panel) {
  std::set<std::uint64_t> keys;
  for (const BenchEntry& entry : panel.entries) keys.insert(entry.row->keys);
  return keys;
}

void add_time_lines(Panels& panels, const BenchView& view, const BenchPanel& panel) {
  const Unit unit = unit_for(panel);
  LineChart chart{.label = fmt::format("Time of {} against {}s. {}", view.op(), view.keys_noun(), panel.title),
                  .x = {fmt::format("{}s", view.keys_noun()), Scale::logarithmic},
                  .y = {fmt::format("median time per call, {}", unit.name), Scale::logarithmic}};
  if (const auto keys = keys_of(panel); keys.size() <= 8) chart.x.ticks.assign(keys.begin(), keys.end());
  std::string last;
  for (const BenchEntry& entry : panel.entries) {
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
  BenchMetric (*metric)(const BenchRow&);
  std::string axis_title;
  double factor = 1;
  std::optional<Limit> limit{};
};

void add_bars(Panels& panels, const BenchView& view, const BenchPanel& panel, const Bars& bars) {
  BarChart chart{.label = fmt::format("{} of {}. {}", bars.axis_title, view.op(), panel.title),
                 .axis_title = bars.axis_title,
                 .limit = bars.limit};
  std::size_t room = kMostBars;
  const std::set<std::uint64_t> keys = keys_of(panel);
  for (const std::uint64_t key : std::views::reverse(keys)) {
    BarGroup group{counted(key, view.keys_noun())};
    for (const BenchEntry& entry : panel.entries) {
      const BenchMetric metric = bars.metric(*entry.row);
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
void for_each_panel(Panels& panels, const BenchView& view, BenchMetric (*metric)(const BenchRow&), Add add) {
  for (const BenchPanel& panel : view.panels()) {
    const auto rows =
        std::ranges::count_if(panel.entries, [&](auto& entry) { return metric(*entry.row).value.has_value(); });
    if (rows == 0) continue;
    if (panels.figures.size() == Panels::kMost) {
      panels.rows_left += static_cast<std::size_t>(rows);
    } else {
      add(panel);
    }
  }
}

// The read speed, if all rows of a panel agree on it to 3 digits.
std::string read_speed_text(const BenchPanel& panel) {
  std::set<std::string> speeds;
  for (const BenchEntry& entry : panel.entries) {
    if (const auto& gbps = entry.row->read_gbps) speeds.insert(number_text(*gbps));
  }
  return speeds.size() == 1 ? fmt::format("the memory's read speed, {} GB/s", *speeds.begin())
                            : "the memory's read speed";
}

}  // namespace

Section bench_charts(const BenchView& view, std::size_t& count) {
  const bool any_noisy = std::ranges::any_of(view.entries(), [](const BenchEntry& entry) { return entry.row->noisy; });
  const std::string marks =
      std::string("Whiskers span p25 to p75.") + (any_noisy ? " Hollow marks and dashed bars are noisy rows." : "");
  Panels time{"Time per call", "Lower is faster. " + marks};
  for_each_panel(time, view, time_of, [&](const BenchPanel& panel) {
    if (keys_of(panel).size() > 1) return add_time_lines(time, view, panel);
    const Unit unit = unit_for(panel);
    add_bars(time, view, panel, {time_of, fmt::format("median time per call, {}", unit.name), unit.per_ms});
  });
  Panels fraction{
      "How close to the memory's speed",
      "Bytes that the call must read and write, by its time, by what plain reading of memory reaches here. " + marks};
  for_each_panel(fraction, view, fraction_of, [&](const BenchPanel& panel) {
    add_bars(fraction, view, panel, {fraction_of, "fraction of read speed", 1, Limit{1, read_speed_text(panel)}});
  });
  Panels speedup{"Speed relative to f16", "How many times as fast as the same call on f16. " + marks};
  for_each_panel(speedup, view, speedup_of, [&](const BenchPanel& panel) {
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

}  // namespace rota::tool
