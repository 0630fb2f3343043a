#include "report/eval_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "report/chart.h"
#include "report/eval_sentence.h"
#include "report/page.h"
#include "report/series.h"
#include "report/words.h"

namespace rota::tool {
namespace {

// Which file each column is from, where there are two.
std::string files_text(const EvalTable& table) {
  if (table.quality == nullptr || table.times == nullptr || table.quality == table.times) return {};
  return fmt::format("ms per token{} from {}, all else from {}", table.memory == table.times ? " and MiB" : "",
                     table.times->origin.label, table.quality->origin.label);
}

std::string table_html(const EvalTable& table, const EvalChoice& choice) {
  using Align = HtmlTable::Align;
  const EvalCache* const slow = table.base(&EvalCache::ms);
  HtmlTable html(HtmlTable::Kind::main);
  html.add_column("cache", Align::left);
  html.add_column("bits", Align::right, true);
  for (const std::string& title :
       {std::string("KL, nats"), std::string("top-1"), "ms per token " + depth_text(table.depth),
        "times " + (slow == nullptr ? "f16" : slow->name) + "'s speed", "MiB at " + counted(table.context, "token")}) {
    html.add_column(title, Align::right);
  }
  for (const EvalCache& cache : table.caches) {
    const bool best = &cache == choice.cache && choice.reached;
    html.add_row({cache.name, number_text(cache.bits), cache.kld ? nats_text(*cache.kld) : "",
                  cache.top1 ? top1_text(*cache.top1) : "", number_text(cache.ms),
                  slow != nullptr && cache.ms ? number_text(slow->ms.value_or(1) / *cache.ms, 2) : "",
                  cache.bytes ? number_text(*cache.bytes / kMiB) : ""},
                 best);
  }
  std::vector<std::string> parts;
  if (table.quality != nullptr) parts.push_back(measured_text(*table.quality));
  parts.push_back(files_text(table));
  if (choice.cache != nullptr && choice.reached) parts.push_back("bold: " + rule_of(choice.by));
  std::erase(parts, std::string());
  return html.html(joined(parts, "; "));
}

// Dense caches would press all others into a corner.
std::string cost_chart(const EvalTable& table) {
  const bool sized = table.memory != nullptr;
  SeriesByName lines;
  for (const EvalCache& cache : table.caches) {
    const double x = sized ? cache.bytes.value_or(0) / kMiB : cache.bits;
    if (cache.is_reference() || cache.bits >= kFewBits || x <= 0 || cache.kld.value_or(0) <= 0) continue;
    Series* const series = lines.find(line_of(cache.kind, cache.rotated, cache.key));
    if (series == nullptr || series->points.size() == kMostPoints) continue;
    series->points.push_back(
        {.x = x,
         .y = cache.kld.value_or(0),
         .name = cut(cache.name, 12),
         .note = fmt::format("{}: {}, KL divergence {} nats{}", cache.name, bits_text(cache.bits),
                             nats_text(cache.kld.value_or(0), 3),
                             cache.bytes ? ", " + number_text(*cache.bytes / kMiB) + " MiB" : std::string())});
  }
  return svg({.label = sized ? "KL divergence against MiB" : "KL divergence against bits",
              .x = {sized ? "MiB at " + counted(table.context, "token") : "bits stored per value"},
              .y = {"KL divergence, nats", Scale::logarithmic},
              .series = std::move(lines).sorted()});
}

std::vector<std::string> time_warnings(const EvalTable& table) {
  const auto& caches = table.caches;
  const auto count = std::ranges::count_if(caches, &EvalCache::is_spread_known);
  const auto wide = std::ranges::count_if(caches, &EvalCache::is_noisy);
  if (wide == 0) return {};
  const std::string all = counted(static_cast<std::uint64_t>(count), "cache");
  const std::string which = wide < count ? fmt::format("{} of {}", wide, all) : count == 1 ? all : "all " + all;
  return {fmt::format("Times are noisy {}: for {}, p90 is more than {} times p10.", depth_text(table.depth), which,
                      number_text(kWideSpread))};
}

}  // namespace

std::string time_chart(const Eval& file, const std::string& label, const std::map<std::string, std::string>& names,
                       std::size_t& rows_left) {
  SeriesByName lines;
  for (const EvalRow& row : file.rows) {
    if (row.ms_per_token.empty()) continue;
    const auto shown = names.find(joined_name(row));
    const std::string& name = shown == names.end() ? row.codec : shown->second;
    Series* const series = lines.find(name);
    if (series == nullptr || !series->points.empty()) {
      ++rows_left;
      continue;
    }
    for (const auto& [depth, ms] : row.ms_per_token) {
      const auto low = row.ms_per_token_p10.find(depth), high = row.ms_per_token_p90.find(depth);
      std::optional<Interval> spread;
      if (low != row.ms_per_token_p10.end() && high != row.ms_per_token_p90.end()) {
        spread = {low->second, high->second};
      }
      series->points.push_back(
          {.x = static_cast<double>(depth),
           .y = ms,
           .spread = spread,
           .note = fmt::format("{}, behind {}: {} ms", name, counted(depth, "token"), number_text(ms, 4))});
    }
  }
  return svg({.label = label,
              .x = {"tokens in the cache", Scale::from_zero},
              .y = {"ms per token", Scale::from_zero},
              .series = std::move(lines).sorted(),
              .spreads_in_range = false});
}

std::string measured_text(const Eval& file) {
  if (file.model.empty() && file.text.empty() && !file.tokens) return {};
  std::string text = (file.model.empty() ? "a model" : model_name(file)) + " read ";
  text += file.tokens ? counted(*file.tokens, "token") : "a text";
  if (!file.text.empty()) text += " of " + file.text;
  if (file.chunk) text += fmt::format(" in chunks of {}", number_text(file.chunk));
  return text;
}

EvalAnswer answer_of(const EvalTable& table, const std::string& title) {
  EvalAnswer answer{.warnings = time_warnings(table)};
  const EvalChoice choice = choice_of(table);
  if (!title.empty()) answer.html += fmt::format("<h3>{}</h3>\n", escaped(title));
  if (const std::string text = sentence_of(table, choice); !text.empty()) {
    answer.html += fmt::format("<p class=\"lede\">{}</p>\n", escaped(text));
  }
  answer.html += table_html(table, choice);
  std::string figures;
  const auto add = [&](const std::string& caption, const std::string& svg) {
    if (svg.empty()) return;
    ++answer.charts;
    figures += fmt::format("<figure><figcaption>{}</figcaption>\n{}\n</figure>\n", escaped(caption), svg);
  };
  add(table.memory == nullptr ? "KL divergence against bits" : "KL divergence against memory", cost_chart(table));
  if (table.times != nullptr) {
    std::map<std::string, std::string> names;
    for (const EvalCache& cache : table.caches) names[cache.key] = cache.name;
    std::size_t rows_left = 0;
    const std::string chart = time_chart(*table.times, "Time of a token", names, rows_left);
    add("Time of a token; whiskers span p10 to p90" +
            (rows_left == 0 ? std::string() : fmt::format("; {} more in the table", counted(rows_left, "row"))),
        chart);
  }
  if (!figures.empty()) answer.html += "<div class=\"two\">\n" + figures + "</div>\n";
  return answer;
}

}  // namespace rota::tool
