#include "report/bench_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "report/page.h"

namespace rota::tool {
namespace {

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string in_brackets(const std::string& text) { return text.empty() ? text : " (" + text + ")"; }

// Of one op in one file.
class Findings {
 public:
  Findings(const BenchView& view, std::size_t file, const std::string& prefix) : view_(view), prefix_(prefix) {
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

  const BenchView& view_;
  const std::string& prefix_;
  std::vector<std::string> said_{};
  std::vector<const BenchRow*> rows_{};
};

}  // namespace

std::vector<std::string> bench_findings(const BenchView& view, std::size_t file, const std::string& prefix) {
  return Findings(view, file, prefix).all();
}

std::vector<std::string> spread_findings(const Bench& file, const std::string& prefix) {
  std::vector<double> spreads;
  for (const BenchRow& row : file.rows) spreads.push_back((row.p75_ms - row.p25_ms) / row.median_ms);
  if (spreads.empty()) return {};
  if (spreads.size() == 1) {
    return {prefix + fmt::format("The middle half of samples spans {} of the median.", percent(spreads[0]))};
  }
  return {prefix +
          fmt::format("The middle half of a row's samples spans {} of its median in the typical row, {} in the "
                      "widest.",
                      percent(middle_of(spreads)), percent(std::ranges::max(spreads)))};
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
    } else {
      findings.push_back(fmt::format("{} takes {} of the time of {} (geometric mean of {}; {} to {}).", label,
                                     number_text(std::exp(sum / static_cast<double>(count))), base,
                                     counted(count, "shared row"), number_text(least), number_text(most)));
    }
  }
  return findings;
}

}  // namespace rota::tool
