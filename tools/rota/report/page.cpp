#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include "report/chart.h"
#include "rota/version.h"

namespace rota::tool {
namespace {

// Colours c1 to c7 are told apart by people who see fewer colours, too, and have 3:1 to the paper.
constexpr const char* kStyle = R"(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --soft: #59616b; --rule: #d5dae0; --grid: #e6e9ed; --panel: #f6f8fa;
  --warn-paper: #fff4d6; --warn-rule: #b57b00; --limit: #b3261e;
  --c0: #4a5058; --c1: #0072b2; --c2: #c85200; --c3: #00805c; --c4: #a8438a; --c5: #9a6f00; --c6: #2b93cf; --c7: #6a51a3;
  --h0: #f4f8fc; --h1: #e3eef8; --h2: #d0e3f3; --h3: #b8d5ec; --h4: #9cc5e4; --h5: #7fb3da; --h6: #64a1cf; --h7: #4a90c3;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e7eaee; --soft: #a3acb7; --rule: #3a424c; --grid: #2a3038; --panel: #1b2026;
    --warn-paper: #3a2f12; --warn-rule: #d9a521; --limit: #ff8a80;
    --c0: #b8c0ca; --c1: #56b4e9; --c2: #ff9147; --c3: #2fc79a; --c4: #e58cc6; --c5: #e3b505; --c6: #9ccbff; --c7: #b9a5f0;
    --h0: #1a2027; --h1: #1b2a38; --h2: #1c3448; --h3: #1d3f5a; --h4: #1e4a6c; --h5: #20567f; --h6: #226393; --h7: #2570a8;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .6rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
p { margin: .2rem 0 .6rem; max-width: 60rem; }
a { color: var(--c1); }
code { font: .86em/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.soft, .common, .more, .kind > p { color: var(--soft); }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .6rem 0 0; }
.findings { margin: .5rem 0; padding-left: 1.2rem; max-width: 60rem; }
.findings li { margin: .35rem 0; }
.warning { margin: .6rem 0; padding: .5rem .8rem; border-left: 4px solid var(--warn-rule); background: var(--warn-paper); color: var(--ink); }
.origin { margin: .9rem 0; padding: .7rem .9rem; background: var(--panel); border: 1px solid var(--rule); border-radius: 6px; }
.origin dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .3rem 0 0; font-size: .9rem; }
.origin dt { color: var(--soft); }
.origin dd { margin: 0; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem 1.4rem; align-items: start; }
.kinds { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 1.4rem; align-items: start; }
.kind { min-width: 0; }
.kind.many { grid-column: 1 / -1; }
figure { margin: .4rem 0; min-width: 0; overflow-x: auto; }
figcaption { font-weight: 600; font-size: .92rem; margin: 0 0 .2rem; }
.chart { display: block; width: 100%; min-width: 26rem; max-width: 44rem; height: auto; }
.chart text { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
.chart .tick, .chart .name { fill: var(--soft); }
.chart .name { font-size: 11px; }
.chart .group { font-weight: 600; }
.chart .value, .chart .name, .chart .group { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.chart .axis { stroke: var(--soft); }
.chart .grid { stroke: var(--grid); }
.chart .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; }
.chart .mark { fill: currentColor; stroke: currentColor; stroke-width: 1.2; }
.chart .bar { fill: currentColor; stroke: currentColor; fill-opacity: .85; }
.chart .mark.hollow { fill: var(--paper); }
.chart .bar.hollow { fill-opacity: .15; stroke-dasharray: 3 2; }
.chart .level { stroke: currentColor; stroke-width: 2; }
.chart .whisker { stroke: currentColor; stroke-width: 1.2; }
.chart .whisker.over { stroke: var(--ink); }
.chart .limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 5 3; }
.chart .limit-name { fill: var(--limit); }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--soft); padding: 0 0 .4rem; }
th, td { padding: .22rem .55rem; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--rule); vertical-align: bottom; }
tbody tr:nth-child(even) { background: var(--panel); }
.r { text-align: right; }
.heat td { text-align: right; border: 1px solid var(--paper); }
.heat caption { color: var(--ink); font-weight: 600; }
.h0 { background: var(--h0); } .h1 { background: var(--h1); } .h2 { background: var(--h2); } .h3 { background: var(--h3); }
.h4 { background: var(--h4); } .h5 { background: var(--h5); } .h6 { background: var(--h6); } .h7 { background: var(--h7); }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media screen and (max-width: 480px) {
  .chart { min-width: 22rem; }
  .chart text { font-size: 13.5px; }
}
@page { margin: 14mm; }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, h3, figcaption { break-after: avoid; }
  .common, .kind > p { break-after: avoid; }
  p, figure, .origin, .heat, tr, .findings li, .kind:not(.many) { break-inside: avoid; }
  figure, .scroll { overflow: visible; }
  .kinds { grid-template-columns: 1fr 1fr; gap: .6rem 1rem; }
  .many .panels { display: block; }
  .many figure { display: inline-block; width: 48%; margin: .3rem 1% .3rem 0; vertical-align: top; }
  .chart { min-width: 0; }
  .tables { break-before: page; }
  table { font-size: 6.5pt; }
  .heat { font-size: 7.5pt; }
  th, td { padding: 1.5pt 3pt; }
}
)";

void add_origin(std::string& html, const Origin& origin, const std::string& kind, std::size_t rows) {
  html += fmt::format("<div class=\"origin\"><strong>{}</strong> <span class=\"soft\">{}, {}</span>\n<dl>\n",
                      escaped(origin.label), kind, counted(rows, "row"));
  const auto add = [&](std::string_view name, const std::string& text, bool code = false) {
    if (text.empty()) return;
    const std::string shown = escaped(text);
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, code ? "<code>" + shown + "</code>" : shown);
  };
  add("measured", origin.date);
  add("rota", origin.version +
                  (origin.commit.empty() ? "" : (origin.version.empty() ? "" : ", ") + ("commit " + origin.commit)));
  add("build", origin.build);
  for (const std::string& device : origin.devices) add("device", device);
  add("command", origin.command, true);
  html += "</dl></div>\n";
}

std::string list_of(const std::vector<PagePart>& parts) {
  std::string items;
  const auto add = [&](std::string_view id, std::string_view title) {
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, escaped(title));
  };
  add("summary", "Summary");
  for (const PagePart& part : parts) {
    for (const Section& section : part.charts) add(section.id, section.title);
  }
  for (const PagePart& part : parts) {
    for (const Section& section : part.tables) add(section.id, "Table of " + section.title);
  }
  return "<nav aria-label=\"Contents\"><ul>" + items + "</ul></nav>\n";
}

std::string summary_of(const std::vector<PagePart>& parts) {
  std::string html = "<section id=\"summary\"><h2>Summary</h2>\n", items;
  for (const PagePart& part : parts) {
    for (const std::string& text : part.warnings) html += fmt::format("<p class=\"warning\">{}</p>\n", escaped(text));
    for (const std::string& text : part.findings) items += fmt::format("<li>{}</li>\n", escaped(text));
  }
  if (!items.empty()) html += "<ul class=\"findings\">\n" + items + "</ul>\n";
  return html + "</section>\n";
}

std::size_t digit_run(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return end - at;
}

}  // namespace

void Panels::add(const std::string& caption, const std::string& svg) {
  if (svg.empty()) return;
  const std::string above = caption.empty() ? "" : fmt::format("<figcaption>{}</figcaption>", escaped(caption));
  figures.push_back(fmt::format("<figure>{}\n{}\n</figure>\n", above, svg));
}

std::string Panels::html() const {
  if (figures.empty()) return {};
  std::string html = fmt::format("<div class=\"kind{}\"><h3>{}</h3>\n<p>{}</p>\n<div class=\"panels\">\n",
                                 figures.size() > 1 ? " many" : "", escaped(title), escaped(text));
  for (const std::string& figure : figures) html += figure;
  html += "</div>\n";
  if (rows_left != 0) html += fmt::format("<p class=\"more\">{} more in the table.</p>\n", counted(rows_left, "row"));
  return html + "</div>\n";
}

std::string HtmlTable::html(const std::string& caption) const {
  std::vector<bool> shown(columns_.size(), true);
  std::vector<std::string> common;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    const bool same =
        std::ranges::all_of(rows_, [&](const auto& row) { return row.at(column) == rows_.front().at(column); });
    const std::string& text = rows_.front().at(column);
    if (!same || (rows_.size() == 1 && !text.empty())) continue;
    shown[column] = false;
    if (!text.empty()) common.push_back(columns_[column].title + " " + text);
  }
  std::string html = "<div class=\"scroll\"><table><caption>" + escaped(counted(rows_.size(), "row") + "; " + caption);
  if (!common.empty()) html += escaped("; the same in all: " + joined(common, ", "));
  html += "</caption>\n<thead><tr>";
  const auto align = [&](std::size_t column) { return columns_[column].align == Align::right ? " class=\"r\"" : ""; };
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (!shown[column]) continue;
    html += fmt::format("<th scope=\"col\"{}>{}</th>", align(column), escaped(columns_[column].title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows_) {
    html += "<tr>";
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (!shown[column]) continue;
      html += fmt::format("<td{}>{}</td>", align(column), escaped(row.at(column).empty() ? "–" : row.at(column)));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string number_text(const std::optional<double>& value) { return value ? number_text(*value) : ""; }

std::string number_text(const std::optional<std::uint64_t>& value) {
  return value ? fmt::format("{}", number_text(static_cast<double>(*value), 17)) : "";
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(separator)) + part;
  return text;
}

std::string codec_pair(const std::string& k, const std::string& v) { return k == v ? k : k + " / " + v; }

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", number_text(std::optional(count)), noun, count == 1 ? "" : "s");
}

bool codec_less(std::string_view a, std::string_view b) {
  const auto is_dense = [](std::string_view name) { return name == "f32" || name == "f16" || name == "bf16"; };
  if (is_dense(a) != is_dense(b)) return is_dense(a);
  std::size_t at = 0, other = 0;
  while (at < a.size() && other < b.size()) {
    const std::size_t run = digit_run(a, at), other_run = digit_run(b, other);
    if (run != 0 && other_run != 0) {
      const auto digits = std::pair(a.substr(at, run), b.substr(other, other_run));
      if (digits.first != digits.second) return std::tuple(run, digits.first) < std::tuple(other_run, digits.second);
      at += run;
      other += other_run;
    } else {
      if (a[at] != b[other]) return a[at] < b[other];
      ++at;
      ++other;
    }
  }
  return a.size() - at < b.size() - other;
}

Page page_of(const ReportData& data, const std::string& title) {
  Page page{{}, 0, 0};
  std::vector<PagePart> parts;
  if (!data.bench.empty()) parts.push_back(bench_part(data.bench));
  if (!data.distort.empty()) parts.push_back(distort_part(data.distort));
  if (!data.eval.empty()) parts.push_back(eval_part(data.eval));
  std::string origins;
  for (const Bench& file : data.bench) {
    add_origin(origins, file.origin, "bench", file.rows.size());
    page.rows += file.rows.size();
  }
  for (const Distort& file : data.distort) {
    const std::size_t rows = file.rows.size() + file.attention.size();
    add_origin(origins, file.origin, "distort", rows);
    page.rows += rows;
  }
  for (const Eval& file : data.eval) {
    add_origin(origins, file.origin, "eval", file.rows.size());
    page.rows += file.rows.size();
  }
  // The policy lets nothing be loaded or run, whatever a file has smuggled in.
  page.html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<header><h1>{0}</h1>\n{2}{3}</header>\n<main>\n{4}",
      escaped(title), kStyle, list_of(parts), origins, summary_of(parts));
  for (const PagePart& part : parts) {
    page.charts += part.chart_count;
    for (const Section& section : part.charts) {
      page.html += fmt::format("<section id=\"{}\"><h2>{}</h2>\n{}</section>\n", section.id, escaped(section.title),
                               section.html);
    }
  }
  std::string tables;
  for (const PagePart& part : parts) {
    for (const Section& section : part.tables) {
      tables += fmt::format("<section id=\"{}\"><h3>{}</h3>\n{}</section>\n", section.id, escaped(section.title),
                            section.html);
    }
  }
  if (!tables.empty()) page.html += "<section class=\"tables\"><h2>Tables</h2>\n" + tables + "</section>\n";
  page.html += "</main>\n<footer>Made by rota report " ROTA_VERSION ".</footer>\n</body>\n</html>\n";
  return page;
}

}  // namespace rota::tool
