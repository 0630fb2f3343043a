#include "report/bench_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "bench/sampler.h"

namespace rota::tool {
namespace {

std::string in_brackets(const std::string& text) { return text.empty() ? text : " (" + text + ")"; }

// Of one op in one file.
class Findings {
 public:
  Findings(const BenchView& view, std::size_t file) : view_(view) {
    for (const BenchEntry& entry : view.entries()) {
      if (entry.file == file) rows_.push_back(entry.row);
    }
  }

  std::vector<std::string> all() && {
    if (rows_.empty()) return {};
    if (!say_speedup()) say_rate();
    say_slower();
    return std::move(said_);
  }

 private:
  void add(const std::string& text) { said_.push_back(text); }

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
    const auto speedup = [](const BenchRow* row) { return row->speedup_vs_f16.value_or(0); };
    const BenchRow* const best = best_of_longest(has_speedup, speedup);
    if (best == nullptr) return false;
    const std::string speed = speed_text(speedup(best), "f16");
    const std::string where = view_.keys_text(*best) + in_brackets(view_.setting_text(*best));
    std::string text = view_.op() == "attend"
                           ? fmt::format("{} attends {} with {}", pair_name(*best), speed, where)
                           : fmt::format("In {}, {} is {} with {}", view_.op(), pair_name(*best), speed, where);
    if (best->fraction_of_read) {
      text += " and moves bytes at " + share_of(*best->fraction_of_read, "the memory's read speed");
    }
    std::vector<double> all;
    for (const BenchRow* row : rows_) {
      if (has_speedup(row) && row->k == best->k && row->v == best->v) all.push_back(speedup(row));
    }
    add(text + range_text(all) + ".");
    return true;
  }

  // What the best codec's other rows reach.
  static std::string range_text(std::vector<double> all) {
    if (all.size() < 2) return {};
    std::ranges::sort(all);
    const std::string low = number_text(all.front(), 2), high = number_text(all.back(), 2);
    const std::string rows = counted(all.size(), "row");
    if (low == high) return fmt::format("; all its {} have {}", rows, share_of(all.front(), "f16's speed"));
    if (all.size() == 2) return fmt::format("; its {} have {} and {} times f16's speed", rows, low, high);
    return fmt::format("; its {} have {} to {} times f16's speed, median {}", rows, low, high,
                       number_text(spread_of(all).median, 2));
  }

  void say_rate() {
    const BenchRow* const best = best_of_longest([](const BenchRow* row) { return row->gbps.has_value(); },
                                                 [](const BenchRow* row) { return row->gbps.value_or(0); });
    if (best == nullptr) return;
    std::string text = fmt::format("{} of {} takes {} for {}{}, which is {} GB/s", view_.op(), pair_name(*best),
                                   time_text(best->median_ms), view_.keys_text(*best),
                                   in_brackets(view_.setting_text(*best)), number_text(best->gbps.value_or(0)));
    if (best->fraction_of_read) text += ", " + share_of(*best->fraction_of_read, "the memory's read speed");
    add(text + ".");
  }

  // Of one row alone, say_speedup() says it.
  void say_slower() {
    std::size_t count = 0, slower = 0;
    const BenchRow* slowest = nullptr;
    for (const BenchRow* row : rows_) {
      if (!has_speedup(row)) continue;
      ++count;
      const auto speed = [](const BenchRow* one) { return one->speedup_vs_f16.value_or(0); };
      slower += speed(row) < 1 && !is_about_one(speed(row)) ? 1U : 0U;
      if (slowest == nullptr || speed(row) < speed(slowest)) slowest = row;
    }
    if (slower == 0 || count == 1) return;
    const std::string worst =
        fmt::format("{} {} with {}{}", pair_name(*slowest), speed_text(slowest->speedup_vs_f16.value_or(0), "f16"),
                    view_.keys_text(*slowest), in_brackets(view_.setting_text(*slowest)));
    if (slower == 1) return add(fmt::format("1 of {} rows of {} is slower than f16: {}.", count, view_.op(), worst));
    const std::string which = slower == count ? fmt::format("All {}", count) : fmt::format("{} of {}", slower, count);
    add(fmt::format("{} rows of {} are slower than f16, the slowest {}.", which, view_.op(), worst));
  }

  const BenchView& view_;
  std::vector<std::string> said_{};
  std::vector<const BenchRow*> rows_{};
};

}  // namespace

std::vector<std::string> bench_findings(const BenchView& view, std::size_t file) { return Findings(view, file).all(); }

std::vector<std::string> spread_findings(const Bench& file) {
  std::vector<double> spreads;
  for (const BenchRow& row : file.rows) spreads.push_back((row.p75_ms - row.p25_ms) / row.median_ms);
  if (spreads.empty()) return {};
  if (spreads.size() == 1) {
    return {fmt::format("The middle half of samples spans {} of the median.", percent(spreads[0]))};
  }
  const std::string typical = percent(spread_of(spreads).median), widest = percent(std::ranges::max(spreads));
  return {fmt::format("The middle half of a row's samples spans {} of its median in the typical row{}.", typical,
                      typical == widest ? " and in the widest" : fmt::format(", {} in the widest", widest))};
}

std::vector<std::string> file_comparisons(const std::vector<Bench>& files) {
  std::vector<std::string> findings;
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
      continue;
    }
    const std::string low = number_text(least), high = number_text(most), rows = counted(count, "shared row");
    const std::string how = count == 1    ? rows
                            : low == high ? fmt::format("the same in {}", rows)
                                          : fmt::format("geometric mean of {}; {} to {}", rows, low, high);
    const double mean = std::exp(sum / static_cast<double>(count));
    findings.push_back(fmt::format("{} takes {} ({}).", label, share_of(mean, "the time of " + base), how));
  }
  return findings;
}

}  // namespace rota::tool
