#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/chart.h"
#include "report/distort_findings.h"
#include "report/page.h"
#include "report/series.h"

// What the page says about the files of `rota distort`.

namespace rota::tool {
namespace {

constexpr std::size_t kLargestHeatTable = 24, kHeatLevels = 8;

struct StorageEntry {
  std::size_t file;
  const StorageRow* row;
};

std::string with_label(const std::string& name, const std::vector<Distort>& files, std::size_t file) {
  return files.size() > 1 ? name + " · " + files[file].origin.label : name;
}

std::string rate_note(const StorageRow& row) {
  std::string note =
      fmt::format("{}, {}: {} bits per value, relative error power {}", row.codec, row.side == "k" ? "keys" : "values",
                  number_text(row.bits_stored, 4), number_text(row.mse));
  if (row.theory_mse) note += fmt::format(", theory {}", number_text(*row.theory_mse));
  if (row.shannon_mse) note += fmt::format(", Shannon's bound {}", number_text(*row.shannon_mse));
  return note;
}

// Keys of which a page's mean is stored apart have a bound of their own.
bool is_one_line(const Series& a, const Series& b) {
  if (a.points.empty() || b.points.empty()) return true;
  const auto at_0_bits = [](const Point& point) { return std::log2(point.y) + 2 * point.x; };
  return std::abs(at_0_bits(a.points.front()) - at_0_bits(b.points.front())) < 0.1;
}

void add_rate_panel(Panels& panels, const std::string& title, const std::vector<StorageEntry>& entries,
                    const std::vector<Distort>& files) {
  const bool few = std::ranges::any_of(entries, [](const auto& entry) { return entry.row->bits_stored < kFewBits; });
  SeriesByName measured;
  Series theory{"theory", {}, Drawn::levels};
  Series key_bound{"Shannon's bound, keys", {0, 0, 1}, Drawn::line};
  Series value_bound{"Shannon's bound, values", {0, 0, 2}, Drawn::line};
  std::set<std::string> named;
  std::set<std::pair<double, double>> seen;
  for (const auto& [file, row] : entries) {
    const bool draw = row->mse > 0 && (!few || row->bits_stored < kFewBits);
    Series* const series =
        draw
            ? measured.find(with_label(family_of(row->codec) + (row->side == "k" ? ", keys" : ", values"), files, file))
            : nullptr;
    if (series == nullptr || series->points.size() == kMostPoints) {
      ++panels.rows_left;
      continue;
    }
    series->points.push_back({.x = row->bits_stored,
                              .y = row->mse,
                              .name = named.insert(row->codec).second ? cut(row->codec, 12) : std::string(),
                              .note = rate_note(*row)});
    const double theory_mse = row->theory_mse.value_or(0);
    if (theory_mse > 0 && seen.insert({row->bits_stored, theory_mse}).second) {
      theory.points.push_back({.x = row->bits_stored, .y = theory_mse, .note = "theory: " + number_text(theory_mse)});
    }
    const double shannon_mse = row->shannon_mse.value_or(0);
    if (shannon_mse > 0) (row->side == "k" ? key_bound : value_bound).points.push_back({row->bits_stored, shannon_mse});
  }
  LineChart chart{.label = "Error against bits: " + title,
                  .x = {"bits stored per value"},
                  .y = {"error power / signal power", Scale::logarithmic},
                  .series = std::move(measured).sorted()};
  if (chart.series.empty()) return;
  if (is_one_line(key_bound, value_bound)) {
    key_bound.name = "Shannon's bound";
    std::ranges::move(value_bound.points, std::back_inserter(key_bound.points));
    value_bound.points.clear();
  }
  for (Series* const extra : {&theory, &key_bound, &value_bound}) {
    std::ranges::sort(extra->points, {}, place_of);
    if (!extra->points.empty()) chart.series.push_back(std::move(*extra));
  }
  panels.add(title, svg(chart));
}

Panels rate_panels(const std::vector<Distort>& files) {
  Panels panels{
      "Error against bits",
      "What sealing does to the numbers themselves. One bit more divides the error's power by 4 at best; no codec "
      "of independent numbers gets below Shannon's bound. Lower is better. Dense codecs and errors of 0 are in "
      "the table only."};
  std::map<std::pair<std::string, std::uint64_t>, std::vector<StorageEntry>> by_source;
  std::vector<std::pair<std::string, std::uint64_t>> order;
  std::map<std::string, std::set<std::uint64_t>> dims;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (const StorageRow& row : files[file].rows) {
      const std::pair key(row.source, row.head_dim.value_or(0));
      if (!by_source.contains(key)) order.push_back(key);
      by_source[key].push_back({file, &row});
    }
  }
  for (const auto& key : order) {
    const auto& entries = by_source[key];
    if (panels.figures.size() == Panels::kMost) {
      panels.rows_left += entries.size();
      continue;
    }
    const std::string dim = key.second == 0 ? std::string() : fmt::format(", head_dim {}", key.second);
    add_rate_panel(panels, source_name(key.first) + dim, entries, files);
  }
  return panels;
}

struct ErrorKind {
  std::optional<double> AttentionRow::* value;
  const char* title;
  const char* axis;
};
constexpr ErrorKind kErrorKinds[] = {
    {&AttentionRow::output_error, "Output: |o' - o| / |o|", "relative error of the output"},
    {&AttentionRow::logit_error, "Logits: RMS of error / RMS of logits", "relative error of logits"},
    {&AttentionRow::kl, "Weights: Kullback-Leibler divergence", "KL divergence, nats"}};

Panels attention_panels(const std::vector<Distort>& files) {
  Panels panels{
      "Error of attention against bits",
      "What sealed keys and values do to attention on queries of each source; lines join codecs with the same K and V. "
      "Lower is better. Dense codecs and errors of 0 are in the table only."};
  bool few = false;
  std::set<std::string> sources, families;
  for (const Distort& file : files) {
    for (const AttentionRow& row : file.attention) {
      few = few || row.bits_stored < kFewBits;
      sources.insert(row.source);
      families.insert(family_of(row.k));
    }
  }
  for (const ErrorKind& kind : kErrorKinds) {
    std::size_t left = 0;
    SeriesByName pairs, mixed;
    std::set<std::string> named;
    for (std::size_t file = 0; file < files.size(); ++file) {
      for (const AttentionRow& row : files[file].attention) {
        const std::optional<double>& error = row.*kind.value;
        if (!error) continue;
        const bool same = row.k == row.v;
        // What only the keys decide would be drawn once per codec of values.
        if (!same && kind.value != &AttentionRow::output_error) continue;
        std::string name = sources.size() > 1 ? source_name(row.source) : std::string();
        if (families.size() > 1 || name.empty()) name += (name.empty() ? "" : ", ") + family_of(row.k);
        name = with_label(name, files, file);
        const bool draw = *error > 0 && (!few || row.bits_stored < kFewBits);
        Series* const series = !draw ? nullptr : same ? pairs.find(name) : mixed.find(name + ", K and V differ");
        if (series == nullptr || series->points.size() == kMostPoints) {
          ++left;
          continue;
        }
        series->points.push_back({.x = row.bits_stored,
                                  .y = *error,
                                  .name = same && named.insert(row.k).second ? cut(row.k, 12) : std::string(),
                                  .note = fmt::format("{}: {} bits per value, {} {}", codec_pair(row.k, row.v),
                                                      number_text(row.bits_stored, 4), kind.axis, number_text(*error)),
                                  .hollow = !same});
      }
    }
    LineChart chart{.label = kind.title,
                    .x = {"bits stored per value, mean of K and V"},
                    .y = {kind.axis, Scale::logarithmic},
                    .series = std::move(pairs).sorted()};
    for (Series& series : std::move(mixed).sorted()) {
      series.drawn = Drawn::markers;
      series.style.marker = 0;
      chart.series.insert(chart.series.begin(), std::move(series));
    }
    panels.rows_left = std::max(panels.rows_left, left);  // the same rows in each chart
    if (!chart.series.empty()) panels.add(kind.title, svg(chart));
  }
  return panels;
}

using Codecs = std::set<std::string, decltype(&codec_less)>;
using Errors = std::map<std::pair<std::string, std::string>, double>;

// Keys and values of which all pairs are there. Codecs that most pairs lack are left out first: dense ones, which are
// measured with themselves alone.
void leave_whole_square(Codecs& keys, Codecs& values, const Errors& errors) {
  const auto missing = [&](const std::string& codec, const Codecs& others, bool is_key) {
    const auto lacks = [&](const std::string& other) {
      return !errors.contains(is_key ? std::pair(codec, other) : std::pair(other, codec));
    };
    return static_cast<double>(std::ranges::count_if(others, lacks)) / static_cast<double>(others.size());
  };
  while (!keys.empty() && !values.empty()) {
    double worst = 0;
    const std::string* codec = nullptr;
    bool is_key = false;
    for (const bool of_keys : {true, false}) {
      for (const std::string& one : of_keys ? keys : values) {
        const double part = missing(one, of_keys ? values : keys, of_keys);
        if (part <= worst) continue;
        worst = part;
        codec = &one;
        is_key = of_keys;
      }
    }
    if (codec == nullptr) return;
    Codecs& from = is_key ? keys : values;
    from.erase(from.find(*codec));
  }
}

// Output errors of one source, codecs of K by codecs of V.
std::string heat_table(const std::string& caption, const std::vector<const AttentionRow*>& rows) {
  Codecs keys(codec_less), values(codec_less);
  Errors errors;
  for (const AttentionRow* row : rows) {
    if (!row->output_error) continue;
    keys.insert(row->k);
    values.insert(row->v);
    errors[{row->k, row->v}] = *row->output_error;
  }
  if (std::max(keys.size(), values.size()) > kLargestHeatTable) return {};
  leave_whole_square(keys, values, errors);
  if (keys.size() < 2 || values.size() < 2) return {};
  double least = 0, most = 0;
  for (const auto& [pair, error] : errors) {
    if (!keys.contains(pair.first) || !values.contains(pair.second)) continue;
    if (error > 0) least = least == 0 ? error : std::min(least, error);
    most = std::max(most, error);
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"heat\"><caption>{}</caption>\n<thead><tr><th scope=\"col\">K \\ V</th>",
      escaped(caption));
  for (const std::string& value : values) html += fmt::format("<th scope=\"col\" class=\"r\">{}</th>", escaped(value));
  html += "</tr></thead>\n<tbody>\n";
  for (const std::string& key : keys) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(key));
    for (const std::string& value : values) {
      const double error = errors[{key, value}];
      const double part = error <= 0 || most <= least ? 0 : std::log(error / least) / std::log(most / least);
      const auto level = std::min(kHeatLevels - 1, static_cast<std::size_t>(part * kHeatLevels));
      html += fmt::format("<td class=\"h{}\">{}</td>", level, escaped(number_text(error)));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string heat_tables(const std::vector<Distort>& files) {
  std::string html;
  for (std::size_t file = 0; file < files.size(); ++file) {
    std::vector<std::string> order;
    std::map<std::string, std::vector<const AttentionRow*>> by_source;
    for (const AttentionRow& row : files[file].attention) {
      auto& rows = by_source[row.source];
      if (rows.empty()) order.push_back(row.source);
      rows.push_back(&row);
    }
    for (const std::string& source : order)
      html += heat_table(with_label(source_name(source), files, file), by_source[source]);
  }
  if (html.empty()) return html;
  return "<div class=\"kind many\"><h3>Error of the output, codecs of keys by codecs of values</h3>\n"
         "<p>|o' - o| / |o|: stronger colour, larger error; each step of colour is the same factor. Codecs that were "
         "not measured with all others are in the table of attention only.</p>\n<div class=\"heats\">\n" +
         html + "</div></div>\n";
}

// What errors of one codec come to at most, over all sources of a file.
struct WorstErrors {
  double bits = 0;
  std::optional<double> output, logits, kl;
};

std::string error_text(const std::optional<double>& error) {
  constexpr double kTiny = 1e-4;
  if (!error) return {};
  return *error > 0 && *error < kTiny ? "<" + percent(kTiny) : percent(*error);
}

bool is_main(const AttentionRow& row) { return row.k == row.v && row.output_error.has_value(); }

// Of which sources the rows of the main table are: each is the worst of its own file's.
struct Sources {
  std::set<std::string> all{};
  std::map<const Distort*, std::set<std::string>> by_file{};

  std::string cell(const Distort& file) const {
    if (by_file.size() < 2 || all.size() < 2) return {};
    const auto& own = by_file.at(&file);
    return own.size() == 1 ? source_name(*own.begin()) : counted(own.size(), "source");
  }
  std::string caption() const {
    if (all.size() == 1) return ", on " + source_name(*all.begin());
    if (by_file.size() == 1) return fmt::format(", the largest of {} sources", all.size());
    const bool several = std::ranges::any_of(by_file, [](const auto& entry) { return entry.second.size() > 1; });
    return several ? ", the largest of each file's sources" : "";
  }
};

Sources main_sources(const std::vector<Distort>& files) {
  Sources sources;
  for (const Distort& file : files) {
    for (const AttentionRow& row : file.attention) {
      if (!is_main(row)) continue;
      sources.all.insert(row.source);
      sources.by_file[&file].insert(row.source);
    }
  }
  return sources;
}

// Each codec with itself.
std::string main_table(const std::vector<Distort>& files) {
  constexpr std::size_t kMostRows = 16;
  HtmlTable table(HtmlTable::Kind::main);
  for (const char* name : {"codec", "file", "source"}) table.add_column(name, HtmlTable::Align::left);
  for (const char* name : {"bits", "error of the output", "error of logits", "KL, nats"}) {
    table.add_column(name, HtmlTable::Align::right);
  }
  std::size_t count = 0;
  const Sources sources = main_sources(files);
  for (const Distort& file : files) {
    std::vector<std::string> order;
    std::map<std::string, WorstErrors> codecs;
    for (const AttentionRow& row : file.attention) {
      if (!is_main(row)) continue;
      if (!codecs.contains(row.k)) order.push_back(row.k);
      WorstErrors& worst = codecs[row.k];
      worst = {std::max(worst.bits, row.bits_stored), std::max(worst.output, row.output_error),
               std::max(worst.logits, row.logit_error), std::max(worst.kl, row.kl)};
    }
    for (const std::string& codec : order) {
      if (++count > kMostRows) continue;
      const WorstErrors& worst = codecs[codec];
      table.add_row({codec, files.size() > 1 ? file.origin.label : "", sources.cell(file), number_text(worst.bits),
                     error_text(worst.output), error_text(worst.logits), number_text(worst.kl)});
    }
  }
  if (count == 0) return {};
  const std::string left = count > kMostRows ? fmt::format("; {} more below", counted(count - kMostRows, "row")) : "";
  return table.html(fmt::format("Attention with one codec for keys and values{}{}", sources.caption(), left));
}

Section storage_table(const Distort& file, std::size_t index, const std::string& title) {
  using Align = HtmlTable::Align;
  HtmlTable table;
  for (const char* name : {"source", "side", "codec"}) table.add_column(name, Align::left);
  for (const char* name : {"head_dim", "values", "bits stored", "error", "theory", "Shannon", "largest error"}) {
    table.add_column(name, Align::right);
  }
  for (const StorageRow& row : file.rows) {
    table.add_row({row.source, row.side == "k" ? "K" : "V", row.codec, number_text(row.head_dim),
                   number_text(row.values), number_text(row.bits_stored, 5), number_text(row.mse),
                   number_text(row.theory_mse), number_text(row.shannon_mse), number_text(row.max_error)});
  }
  return {fmt::format("table-distort-{}", index + 1), title,
          table.html("error, theory, Shannon: error power / signal power")};
}

Section attention_table(const Distort& file, std::size_t index, const std::string& title) {
  using Align = HtmlTable::Align;
  HtmlTable table;
  for (const char* name : {"source", "K", "V"}) table.add_column(name, Align::left);
  for (const char* name : {"bits stored", "logit error", "KL, nats", "output error"})
    table.add_column(name, Align::right);
  for (const AttentionRow& row : file.attention) {
    table.add_row({row.source, row.k, row.v, number_text(row.bits_stored, 5), number_text(row.logit_error),
                   number_text(row.kl), number_text(row.output_error)});
  }
  return {fmt::format("table-attention-{}", index + 1), title, table.html("errors are relative")};
}

}  // namespace

PagePart distort_part(const std::vector<Distort>& files) {
  PagePart part{.kind = "distort", .title = "What codecs do to numbers (distort)"};
  const Panels rate = rate_panels(files), attention = attention_panels(files);
  const std::string html = rate.html() + attention.html() + heat_tables(files);
  if (!html.empty()) part.charts.push_back({"distort", "distort", "<div class=\"kinds\">\n" + html + "</div>\n"});
  part.answer = main_table(files);
  part.chart_count = rate.figures.size() + attention.figures.size();
  for (std::size_t index = 0; index < files.size(); ++index) {
    const Distort& file = files[index];
    const bool named = files.size() > 1;
    const std::string prefix = named ? file.origin.label + ": " : std::string();
    const std::string title_end = named ? " · " + file.origin.label : std::string();
    std::ranges::move(distort_findings(file, prefix), std::back_inserter(part.findings));
    if (!file.rows.empty()) part.tables.push_back(storage_table(file, index, "distort: stored values" + title_end));
    if (!file.attention.empty()) part.tables.push_back(attention_table(file, index, "distort: attention" + title_end));
    if (file.rows.empty() && file.attention.empty()) {
      part.warnings.push_back(fmt::format("{} has no rows: nothing was measured.", file.origin.label));
    }
  }
  return part;
}

}  // namespace rota::tool
