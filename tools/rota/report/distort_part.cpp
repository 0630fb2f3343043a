#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "report/chart.h"
#include "report/page.h"
#include "report/series.h"

// What the page says about the files of `rota distort`.

namespace rota::tool {
namespace {

constexpr std::size_t kMostPanels = 8;
constexpr std::size_t kLargestHeatTable = 16, kHeatLevels = 8;

std::string pair_name(const AttentionRow& row) { return codec_pair(row.k, row.v); }

struct StorageEntry {
  std::size_t file;
  const StorageRow* row;
};

std::string source_name(const std::string& source) { return cut(source, 60); }

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
    if (panels.figures.size() == kMostPanels) {
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
      "What sealed keys and values do to attention on recorded queries; lines join codecs with the same K and V. "
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
          ++panels.rows_left;
          continue;
        }
        series->points.push_back({.x = row.bits_stored,
                                  .y = *error,
                                  .name = same && named.insert(row.k).second ? cut(row.k, 12) : std::string(),
                                  .note = fmt::format("{}: {} bits per value, {} {}", pair_name(row),
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
    if (!chart.series.empty()) panels.add(kind.title, svg(chart));
  }
  return panels;
}

// Output errors of one source over all codecs of K and of V; nothing unless every pair is there.
std::string heat_table(const std::string& caption, const std::vector<const AttentionRow*>& rows) {
  const auto less = [](const std::string& a, const std::string& b) { return codec_less(a, b); };
  std::set<std::string, decltype(less)> keys(less), values(less);
  std::map<std::pair<std::string, std::string>, double> errors;
  double least = 0, most = 0;
  for (const AttentionRow* row : rows) {
    if (!row->output_error) continue;
    const double error = *row->output_error;
    keys.insert(row->k);
    values.insert(row->v);
    errors[{row->k, row->v}] = error;
    if (error > 0) least = least == 0 ? error : std::min(least, error);
    most = std::max(most, error);
  }
  if (keys.size() < 2 || values.size() < 2 || errors.size() != keys.size() * values.size() ||
      std::max(keys.size(), values.size()) > kLargestHeatTable) {
    return {};
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"heat\"><caption>{}</caption>\n<thead><tr><th scope=\"col\">K \\ V</th>",
      escaped(caption));
  for (const std::string& value : values) html += fmt::format("<th scope=\"col\">{}</th>", escaped(value));
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
         "<p>|o' - o| / |o|: stronger colour, larger error; each step of colour is the same factor.</p>\n<div "
         "class=\"panels\">\n" +
         html + "</div></div>\n";
}

void say_storage(const Distort& file, const std::string& prefix, std::vector<std::string>& findings) {
  // Bits that an ideal codec would need less, per source: all codecs that have a bound.
  std::vector<std::string> order;
  std::map<std::string, Interval> waste;
  double worst_theory = 1;
  const StorageRow* off_theory = nullptr;
  for (const StorageRow& row : file.rows) {
    const double shannon_mse = row.shannon_mse.value_or(0);
    if (row.mse > 0 && shannon_mse > 0 && row.bits_stored < kFewBits) {
      const double bits = 0.5 * std::log2(row.mse / shannon_mse);
      if (!waste.contains(row.source)) {
        order.push_back(row.source);
        waste[row.source] = {bits, bits};
      }
      Interval& spread = waste[row.source];
      spread = {std::min(spread.low, bits), std::max(spread.high, bits)};
    }
    const double theory_mse = row.theory_mse.value_or(0);
    if (row.mse > 0 && theory_mse > 0) {
      const double ratio = row.mse / theory_mse;
      if (off_theory == nullptr || std::abs(std::log(ratio)) > std::abs(std::log(worst_theory))) {
        off_theory = &row;
        worst_theory = ratio;
      }
    }
  }
  constexpr std::size_t kMostSources = 4;
  for (std::size_t at = 0; at < std::min(order.size(), kMostSources); ++at) {
    const Interval& spread = waste[order[at]];
    const std::string low = number_text(spread.low, 2), high = number_text(spread.high, 2);
    findings.push_back(fmt::format("{}On {}, codecs store {} bits per value more than Shannon's bound for their error.",
                                   prefix, source_name(order[at]),
                                   low == high ? low : fmt::format("{} to {}", low, high)));
  }
  if (off_theory != nullptr) {
    findings.push_back(
        fmt::format("{}Where theory gives an error, the measured one is furthest from it for {} on {}: {} of it.",
                    prefix, off_theory->codec, source_name(off_theory->source), number_text(worst_theory)));
  }
}

void say_attention(const Distort& file, const std::string& prefix, std::vector<std::string>& findings) {
  // The fewest bits that keep the output within these errors.
  for (const double most : {0.05, 0.01}) {
    const AttentionRow* best = nullptr;
    for (const AttentionRow& row : file.attention) {
      if (!row.output_error || *row.output_error > most) continue;
      if (best == nullptr ||
          std::pair(row.bits_stored, *row.output_error) < std::pair(best->bits_stored, best->output_error.value_or(0)))
        best = &row;
    }
    if (best == nullptr) continue;
    std::string text =
        fmt::format("{}Attention's output stays within {}% from {} bits per value on: {} on {} errs by {}%", prefix,
                    number_text(100 * most), number_text(best->bits_stored), pair_name(*best),
                    source_name(best->source), number_text(100 * best->output_error.value_or(0)));
    if (best->kl) text += fmt::format(", its KL divergence is {} nats", number_text(*best->kl));
    findings.push_back(text + ".");
  }
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
  PagePart part;
  const Panels rate = rate_panels(files), attention = attention_panels(files);
  const std::string html = rate.html() + attention.html() + heat_tables(files);
  if (!html.empty()) part.charts.push_back({"distort", "distort", "<div class=\"kinds\">\n" + html + "</div>\n"});
  part.chart_count = rate.figures.size() + attention.figures.size();
  for (std::size_t index = 0; index < files.size(); ++index) {
    const Distort& file = files[index];
    const bool named = files.size() > 1;
    const std::string prefix = named ? file.origin.label + ": " : std::string();
    const std::string title_end = named ? " · " + file.origin.label : std::string();
    say_attention(file, prefix, part.findings);
    say_storage(file, prefix, part.findings);
    if (!file.rows.empty()) part.tables.push_back(storage_table(file, index, "distort: stored values" + title_end));
    if (!file.attention.empty()) part.tables.push_back(attention_table(file, index, "distort: attention" + title_end));
    if (file.rows.empty() && file.attention.empty()) {
      part.warnings.push_back(fmt::format("{} has no rows: nothing was measured.", file.origin.label));
    }
  }
  return part;
}

}  // namespace rota::tool
