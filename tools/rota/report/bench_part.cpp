#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "report/bench_charts.h"
#include "report/bench_findings.h"
#include "report/bench_view.h"
#include "report/page.h"

// What the page says about the files of `rota bench`.

namespace rota::tool {
namespace {

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

constexpr std::string_view kTableOrder[] = {"op",
                                            "k",
                                            "v",
                                            "device",
                                            "model",
                                            "scope",
                                            "layers",
                                            "head_dim",
                                            "value_dim",
                                            "kv_heads",
                                            "group",
                                            "window",
                                            "keys",
                                            "rows",
                                            "sequences",
                                            "threads",
                                            "samples",
                                            "median_ms",
                                            "min_ms",
                                            "p25_ms",
                                            "p75_ms",
                                            "spread",
                                            "bytes",
                                            "gbps",
                                            "read_gbps",
                                            "fraction_of_read",
                                            "speedup_vs_f16",
                                            "tokens_per_second",
                                            "noisy"};

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

// The rows of the most keys.
std::string main_table(const BenchView& view, const std::vector<Bench>& files) {
  constexpr std::size_t kMostRows = 12;
  std::uint64_t most = 0;
  for (const BenchEntry& entry : view.entries()) most = std::max(most, entry.row->keys);
  HtmlTable table(HtmlTable::Kind::main);
  for (const char* name : {"codec", "setting", "file"}) table.add_column(name, HtmlTable::Align::left);
  for (const char* name : {"ms", "times f16's speed", "of read speed"}) table.add_column(name, HtmlTable::Align::right);
  table.add_column("noise", HtmlTable::Align::left);
  std::size_t count = 0;
  for (const BenchPanel& panel : view.panels()) {
    for (const auto& [file, row] : panel.entries) {
      if (row->keys != most) continue;
      if (++count > kMostRows) continue;
      const std::optional<double>& read = row->fraction_of_read;
      table.add_row({pair_name(*row), view.setting_text(*row), files.size() > 1 ? files[file].origin.label : "",
                     number_text(row->median_ms, 4), number_text(speedup_of(*row).value), read ? percent(*read) : "",
                     row->noisy ? "noisy" : ""});
    }
  }
  const std::string left = count > kMostRows ? fmt::format("; {} more below", counted(count - kMostRows, "row")) : "";
  return table.html(fmt::format("{} with {}{}", view.op(), counted(most, view.keys_noun()), left));
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

// What is said of one file or of several; each file adds so many sentences at most to those of the first.
class FileFindings {
 public:
  explicit FileFindings(const std::vector<Bench>& files) : files_(files), own_(files.size()) {}

  void add(std::size_t file, const std::vector<std::string>& texts) {
    constexpr std::size_t kMostOfLater = 3;
    for (const std::string& text : texts) {
      const auto same = std::ranges::find(said_, text, &Said::text);
      if (same != said_.end()) {
        same->files.push_back(files_[file].origin.label);
      } else if (file == 0 || ++own_[file] <= kMostOfLater) {
        said_.push_back({text, {files_[file].origin.label}});
      }
    }
  }
  std::vector<std::string> all() const {
    std::vector<std::string> findings;
    for (const auto& [text, files] : said_) {
      findings.push_back((files_.size() > 1 ? joined(files, ", ") + ": " : "") + text);
    }
    return findings;
  }

 private:
  struct Said {
    std::string text;
    std::vector<std::string> files;
  };
  const std::vector<Bench>& files_;
  std::vector<std::size_t> own_;
  std::vector<Said> said_{};
};

void add_warnings(std::vector<std::string>& warnings, const Bench& file, const std::string& prefix) {
  if (file.interrupted) {
    warnings.push_back(prefix + "The measurement was interrupted: rows have fewer samples than were asked for.");
  }
  if (file.noisy) {
    warnings.push_back(fmt::format(
        "{}The machine was not quiet{}: small differences mean nothing.", prefix,
        file.read_spread ? fmt::format(" (plain reading of memory varied by {})", percent(*file.read_spread)) : ""));
  }
  const auto noisy = std::ranges::count_if(file.rows, &BenchRow::noisy);
  if (noisy != 0) {
    warnings.push_back(fmt::format("{}{} of {} {} noisy: {} samples differ too much.", prefix, noisy,
                                   counted(file.rows.size(), "row"), noisy == 1 ? "is" : "are",
                                   noisy == 1 ? "its" : "their"));
  }
}

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

PagePart bench_part(const std::vector<Bench>& files) {
  PagePart part{.kind = "bench", .title = "What ops take (bench)"};
  FileFindings findings(files);
  const auto pairs = pairs_of(files);
  for (const char* op : {"attend", "seal", "store", "rope"}) {
    std::vector<BenchEntry> entries;
    for (std::size_t file = 0; file < files.size(); ++file) {
      for (const BenchRow& row : files[file].rows) {
        if (row.op == op) entries.push_back({file, &row});
      }
    }
    if (entries.empty()) continue;
    const BenchView view(op, std::move(entries), files, pairs);
    part.charts.push_back(bench_charts(view, part.chart_count));
    if (part.answer.empty()) part.answer = main_table(view, files);
    for (std::size_t file = 0; file < files.size(); ++file) {
      findings.add(file, bench_findings(view, file));
    }
  }
  for (std::size_t index = 0; index < files.size(); ++index) {
    const Bench& file = files[index];
    findings.add(index, spread_findings(file));
    add_warnings(part.warnings, file, files.size() > 1 ? file.origin.label + ": " : std::string());
    if (file.rows.empty()) {
      part.warnings.push_back(fmt::format("{} has no rows: nothing was measured.", file.origin.label));
      continue;
    }
    part.tables.push_back(table_of(file, index, files.size() > 1));
  }
  // Who gives two files asks how they compare.
  if (files.size() > 1) append(part.findings, file_comparisons(files));
  append(part.findings, findings.all());
  return part;
}

}  // namespace rota::tool
