#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "report/chart.h"
#include "report/eval_answer.h"
#include "report/eval_sentence.h"
#include "report/page.h"
#include "report/series.h"

// What the page says about the files of `rota eval`, and of what measures it in an engine.

namespace rota::tool {
namespace {

using Kind = EvalRow::Kind;

struct Entry {
  std::size_t file;
  const EvalRow* row;
};

// All but the caches that they are compared with.
std::vector<Entry> codecs_of(const std::vector<Eval>& files) {
  std::vector<Entry> entries;
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (const EvalRow& row : files[file].rows) {
      if (row.kind != Kind::reference) entries.push_back({file, &row});
    }
  }
  return entries;
}

std::string with_label(const std::string& name, const std::vector<Eval>& files, std::size_t file) {
  return files.size() > 1 ? name + " · " + files[file].origin.label : name;
}

std::string note_of(const EvalRow& row) {
  std::string note = fmt::format("{}: {} bits per value", row.codec, number_text(row.bits_stored, 4));
  if (row.kld_mean) note += fmt::format(", divergence {} nats", nats_text(*row.kld_mean, 3));
  if (row.kld_p99) note += fmt::format(", 99% below {}", number_text(*row.kld_p99));
  if (row.top1) note += fmt::format(", the same best token at {}", top1_text(*row.top1));
  if (row.perplexity) note += fmt::format(", perplexity {}", number_text(*row.perplexity, 5));
  return note;
}

struct Place {
  std::optional<double> x, y;
};

// A chart with a point for each codec that has a place; dense ones only if there is nothing else.
template <class PlaceOf>
void add_panel(Panels& panels, LineChart chart, const std::vector<Eval>& files, PlaceOf place_of_row) {
  const std::vector<Entry> entries = codecs_of(files);
  const bool few = std::ranges::any_of(entries, [](const Entry& entry) { return entry.row->bits_stored < kFewBits; });
  SeriesByName lines;
  std::set<std::string> named;
  std::size_t left = 0;
  for (const auto& [file, row] : entries) {
    const Place place = place_of_row(*row);
    const double y = place.y.value_or(0);
    if (!place.x || !place.y) continue;
    const bool draw = y > 0 && (!few || row->bits_stored < kFewBits);
    Series* const series =
        draw ? lines.find(with_label(line_of(row->kind, row->rotated, row->codec), files, file)) : nullptr;
    if (series == nullptr || series->points.size() == kMostPoints) {
      ++left;
      continue;
    }
    series->points.push_back({.x = place.x.value_or(0),
                              .y = y,
                              .name = named.insert(row->codec).second ? cut(row->codec, 12) : std::string(),
                              .note = note_of(*row)});
  }
  panels.rows_left = std::max(panels.rows_left, left);  // the same rows in each chart
  chart.series = std::move(lines).sorted();
  if (!chart.series.empty()) panels.add(chart.label, svg(chart));
}

Panels bits_panels(const std::vector<Eval>& files) {
  Panels panels{
      "What codecs do to predictions",
      "The model read one text with each cache; its predictions are compared with those of its own cache. Lower "
      "is better, and so is further to the left. Dense codecs and errors of 0 are in the table only."};
  struct Drawn {
    std::optional<double> (*value)(const EvalRow&);
    const char* title;
    const char* axis;
  };
  constexpr Drawn kDrawn[] = {
      {[](const EvalRow& row) { return row.kld_mean; }, "Divergence of predictions, mean", "KL divergence, nats"},
      {[](const EvalRow& row) { return row.kld_p99; }, "Divergence that 99% of positions stay below",
       "KL divergence, nats"},
      {[](const EvalRow& row) { return row.attention_error_mean; }, "Attention: |o' - o| / |o|, mean of layers",
       "relative error of the output"}};
  for (const Drawn& drawn : kDrawn) {
    add_panel(
        panels,
        {.label = drawn.title, .x = {"bits stored per value"}, .y = {drawn.axis, Scale::logarithmic}, .series = {}},
        files, [&](const EvalRow& row) { return Place{row.bits_stored, drawn.value(row)}; });
  }
  return panels;
}

// All contexts but those that are drawn already.
Panels memory_panels(const std::vector<Eval>& files, const std::set<std::uint64_t>& drawn) {
  Panels panels{
      "What memory buys",
      "Divergence against all that a cache of one sequence takes, its dense tokens included. Lower is better, "
      "and so is further to the left. Dense codecs are in the table only."};
  std::set<std::uint64_t> contexts;
  for (const Entry& entry : codecs_of(files)) {
    for (const auto& [context, bytes] : entry.row->bytes) contexts.insert(context);
  }
  for (const std::uint64_t context : contexts) {
    if (drawn.contains(context)) continue;
    if (panels.figures.size() == Panels::kMost) break;
    add_panel(panels,
              {.label = "Context of " + counted(context, "token"),
               .x = {"MiB"},
               .y = {"KL divergence, nats", Scale::logarithmic},
               .series = {}},
              files, [&](const EvalRow& row) {
                const auto found = row.bytes.find(context);
                return Place{found == row.bytes.end() ? std::nullopt : std::optional(found->second / kMiB),
                             row.kld_mean};
              });
  }
  return panels;
}

// A chart with a line for each row that has points.
template <class PointsOf>
void add_lines(Panels& panels, LineChart chart, const Eval& file, PointsOf points_of) {
  SeriesByName lines;
  for (const EvalRow& row : file.rows) {
    std::vector<Point> points = points_of(row);
    if (points.empty()) continue;
    Series* const series = lines.find(row.codec);
    if (series == nullptr || !series->points.empty()) {
      ++panels.rows_left;
      continue;
    }
    series->points = std::move(points);
  }
  chart.series = std::move(lines).sorted();
  if (!chart.series.empty() && panels.figures.size() < Panels::kMost) panels.add(chart.label, svg(chart));
}

Panels layer_panels(const std::vector<Eval>& files) {
  Panels panels{
      "Error of attention by layer",
      "|o' - o| / |o| of each layer's output of attention, with all that earlier layers did to its input. Lower "
      "is better."};
  for (std::size_t file = 0; file < files.size(); ++file) {
    add_lines(panels,
              {.label = with_label("Each layer", files, file),
               .x = {"layer"},
               .y = {"relative error of the output", Scale::logarithmic},
               .series = {}},
              files[file], [](const EvalRow& row) {
                std::vector<Point> points;
                if (row.kind == Kind::reference) return points;
                for (std::size_t layer = 0; layer < std::min(row.attention_errors.size(), kMostPoints); ++layer) {
                  const double error = row.attention_errors[layer];
                  if (error <= 0) continue;
                  points.push_back({.x = static_cast<double>(layer),
                                    .y = error,
                                    .note = fmt::format("{}, layer {}: {}", row.codec, layer, number_text(error))});
                }
                return points;
              });
  }
  return panels;
}

// Of all files but those that are drawn already.
Panels time_panels(const std::vector<Eval>& files, const std::set<const Eval*>& drawn) {
  Panels panels{
      "Time of a token",
      "Median time in which the engine decodes one token, by the tokens that the cache holds already. Lower is "
      "better. Whiskers span p10 to p90, as far as the axis goes."};
  for (std::size_t file = 0; file < files.size(); ++file) {
    if (drawn.contains(&files[file]) || panels.figures.size() == Panels::kMost) continue;
    const std::string label = with_label("Each cache", files, file);
    panels.add(label, time_chart(files[file], label, {}, panels.rows_left));
  }
  return panels;
}

// In nats; infinite where it was not measured, so that no such row is the best.
double divergence(const EvalRow& row) { return row.kld_mean.value_or(std::numeric_limits<double>::infinity()); }

// "5% of what", "as much as", "2 times what"
std::string compared(double ratio) { return is_about_one(ratio) ? "as much as" : share_of(ratio, "what"); }

// Each of ggml's formats, simulated or in the engine, beside the best of Rota's codecs that takes no more bits.
void say_rivals(const Eval& file, const std::string& prefix, std::vector<std::string>& findings) {
  constexpr std::size_t kMostSentences = 6;
  std::size_t said = 0;
  for (const EvalRow& rival : file.rows) {
    const bool is_rival = rival.kind == Kind::simulated || rival.kind == Kind::engine;
    if (!is_rival || divergence(rival) == 0 || !rival.kld_mean || said == kMostSentences) continue;
    const EvalRow* best = nullptr;
    for (const EvalRow& row : file.rows) {
      if (row.kind != Kind::rota || !row.kld_mean || row.bits_stored > rival.bits_stored) continue;
      if (best == nullptr || divergence(row) < divergence(*best)) best = &row;
    }
    if (best == nullptr) continue;
    ++said;
    findings.push_back(fmt::format("{}{} with {} per value diverges by {} nats, {} {} does with {}.", prefix,
                                   best->codec, bits_text(best->bits_stored), nats_text(divergence(*best), 3),
                                   compared(divergence(*best) / divergence(rival)), rival.codec,
                                   bits_text(rival.bits_stored)));
  }
}

// The fewest bits that keep predictions within some divergences.
void say_least(const Eval& file, const std::string& prefix, std::vector<std::string>& findings) {
  const EvalRow* said = nullptr;
  for (const double most : kNatsSteps) {
    const EvalRow* best = nullptr;
    for (const EvalRow& row : file.rows) {
      if (row.kind == Kind::reference || divergence(row) > most) continue;
      if (best == nullptr ||
          std::pair(row.bits_stored, divergence(row)) < std::pair(best->bits_stored, divergence(*best))) {
        best = &row;
      }
    }
    if (best == nullptr || best == said) continue;
    said = best;
    std::string text = fmt::format(
        "{}{} has the fewest bits that keep predictions within {} nats: {} per value, divergence {}", prefix,
        best->codec, number_text(most), bits_text(best->bits_stored), nats_text(divergence(*best), 3));
    if (best->top1) text += fmt::format(", the same best token at {} of positions", top1_text(*best->top1));
    findings.push_back(text + ".");
  }
}

// Columns of a table that stand for numbers of tokens.
class ColumnsByTokens {
 public:
  using Values = std::map<std::uint64_t, double>;

  ColumnsByTokens(const Eval& file, Values EvalRow::* member, double unit) : member_(member), unit_(unit) {
    for (const EvalRow& row : file.rows) {
      for (const auto& [count, value] : row.*member) counts_.insert(count);
    }
  }
  void add_to(HtmlTable& table, const std::string& title) const {
    for (const std::uint64_t count : counts_) {
      table.add_column(title + number_text(std::optional(count)), HtmlTable::Align::right);
    }
  }
  void add_to(std::vector<std::string>& cells, const EvalRow& row) const {
    for (const std::uint64_t count : counts_) {
      const auto found = (row.*member_).find(count);
      cells.push_back(found == (row.*member_).end() ? "" : number_text(found->second / unit_, 4));
    }
  }

 private:
  Values EvalRow::* member_;
  double unit_;
  std::set<std::uint64_t> counts_{};
};

Section eval_table(const Eval& file, std::size_t index, const std::string& title) {
  using Align = HtmlTable::Align;
  HtmlTable table;
  table.add_column("codec", Align::left);
  for (const char* name : {"bits stored", "KLD mean", "KLD 99%", "KLD largest", "top-1", "perplexity",
                           "error of attention", "worst layer", "sealed keys"}) {
    table.add_column(name, Align::right);
  }
  const ColumnsByTokens times(file, &EvalRow::ms_per_token, 1), bytes(file, &EvalRow::bytes, kMiB);
  times.add_to(table, "ms at ");
  bytes.add_to(table, "MiB at ");
  for (const EvalRow& row : file.rows) {
    std::vector<std::string> cells{row.codec,
                                   number_text(row.bits_stored, 5),
                                   number_text(row.kld_mean),
                                   number_text(row.kld_p99),
                                   number_text(row.kld_max),
                                   row.top1 ? number_text(*row.top1, 4) : "",
                                   row.perplexity ? number_text(*row.perplexity, 6) : "",
                                   number_text(row.attention_error_mean),
                                   number_text(row.attention_error_worst),
                                   number_text(row.sealed_share)};
    times.add_to(cells, row);
    bytes.add_to(cells, row);
    table.add_row(std::move(cells));
  }
  return {fmt::format("table-eval-{}", index + 1), title, table.html("KLD in nats; errors are relative; ms per token")};
}

// What stands above one of several tables.
std::string title_of(const EvalTable& table, const std::vector<Eval>& files) {
  std::vector<std::string> labels;
  for (const std::size_t file : table.files) labels.push_back(files[file].origin.label);
  const std::string model = model_name(files[table.files.front()]);
  return model + (model.empty() ? "" : " · ") + joined(labels, ", ");
}

// What the first screen has drawn, so that no chart comes twice.
struct DrawnAlready {
  std::set<std::uint64_t> contexts{};
  std::set<const Eval*> timed{};
};

DrawnAlready add_answers(PagePart& part, const std::vector<Eval>& files) {
  DrawnAlready drawn;
  const std::vector<EvalTable> tables = joined_tables(files);
  for (const EvalTable& table : tables) {
    const bool alone = tables.size() == 1;
    const EvalAnswer answer = answer_of(table, alone ? "" : title_of(table, files));
    part.answer += answer.html;
    part.chart_count += answer.charts;
    for (const std::string& text : answer.warnings) {
      part.warnings.push_back((alone ? "" : table.times->origin.label + ": ") + text);
    }
    drawn.timed.insert(table.times);
    const auto has_context = [&](const Eval& file) {
      return std::ranges::any_of(file.rows, [&](auto& row) { return row.bytes.contains(table.context); });
    };
    if (std::ranges::count_if(files, has_context) == 1) drawn.contexts.insert(table.context);
  }
  return drawn;
}

}  // namespace

PagePart eval_part(const std::vector<Eval>& files) {
  PagePart part{.kind = "eval", .title = "What a cache costs the model (eval)"};
  const DrawnAlready drawn = add_answers(part, files);
  std::vector<std::string> findings;
  for (std::size_t index = 0; index < files.size(); ++index) {
    const Eval& file = files[index];
    const bool named = files.size() > 1;
    const std::string prefix = named ? file.origin.label + ": " : std::string();
    if (file.rows.empty()) {
      part.warnings.push_back(fmt::format("{} has no rows: nothing was measured.", file.origin.label));
      continue;
    }
    say_least(file, prefix, findings);
    say_rivals(file, prefix, findings);
    part.tables.push_back(eval_table(file, index, "eval" + (named ? " · " + file.origin.label : std::string())));
  }
  const Panels bits = bits_panels(files), memory = memory_panels(files, drawn.contexts), layers = layer_panels(files),
               times = time_panels(files, drawn.timed);
  const std::string html = bits.html() + memory.html() + layers.html() + times.html();
  if (!html.empty()) {
    part.charts.push_back({"eval", "eval", findings_html(findings) + "<div class=\"kinds\">\n" + html + "</div>\n"});
  } else {
    part.findings = std::move(findings);
  }
  for (const Panels* panels : {&bits, &memory, &layers, &times}) part.chart_count += panels->figures.size();
  return part;
}

}  // namespace rota::tool
