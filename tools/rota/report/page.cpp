#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "rota/version.h"

namespace rota::tool {
namespace {

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

std::string origins_of(const ReportData& data) {
  std::string html;
  for (const Eval& file : data.eval) add_origin(html, file.origin, "eval", file.rows.size());
  for (const Bench& file : data.bench) add_origin(html, file.origin, "bench", file.rows.size());
  for (const Distort& file : data.distort) {
    add_origin(html, file.origin, "distort", file.rows.size() + file.attention.size());
  }
  return "<section id=\"measured\"><h2>What was measured</h2>\n" + html + "</section>\n";
}

std::size_t rows_of(const ReportData& data) {
  std::size_t rows = 0;
  for (const Bench& file : data.bench) rows += file.rows.size();
  for (const Distort& file : data.distort) rows += file.rows.size() + file.attention.size();
  for (const Eval& file : data.eval) rows += file.rows.size();
  return rows;
}

std::string list_of(const std::vector<PagePart>& parts) {
  std::string items;
  const auto add = [&](std::string_view id, std::string_view title) {
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, escaped(title));
  };
  for (const PagePart& part : parts) {
    for (const Section& section : part.charts) add(section.id, section.title);
  }
  for (const PagePart& part : parts) {
    for (const Section& section : part.tables) add(section.id, "Table of " + section.title);
  }
  add("measured", "What was measured");
  return "<nav aria-label=\"Contents\"><ul>" + items + "</ul></nav>\n";
}

// The answer: what is to be distrusted, what was found, and the tables and charts that show it.
std::string summary_of(const std::vector<PagePart>& parts) {
  std::string html = "<section id=\"summary\">\n";
  for (const PagePart& part : parts) {
    for (const std::string& text : part.warnings) {
      const std::string which = parts.size() > 1 ? part.kind + ": " : std::string();
      html += fmt::format("<p class=\"warning\">{}</p>\n", escaped(which + text));
    }
  }
  for (const PagePart& part : parts) {
    const std::string inside = findings_html(part.findings) + part.answer;
    if (inside.empty()) continue;
    if (parts.size() > 1) html += fmt::format("<h2>{}</h2>\n", escaped(part.title));
    html += inside;
  }
  return html + "</section>\n";
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

std::string findings_html(const std::vector<std::string>& findings) {
  if (findings.empty()) return {};
  std::string items;
  for (const std::string& text : findings) items += fmt::format("<li>{}</li>\n", escaped(text));
  return "<ul class=\"findings\">\n" + items + "</ul>\n";
}

std::string HtmlTable::caption_text(const std::string& caption, const std::vector<bool>& shown) const {
  std::vector<std::string> common;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    const std::string& text = rows_.front().cells.at(column);
    if (!shown[column] && !text.empty()) common.push_back(columns_[column].title + " " + text);
  }
  std::vector<std::string> parts;
  if (kind_ == Kind::all) parts.push_back(counted(rows_.size(), "row"));
  if (!caption.empty()) parts.push_back(caption);
  if (!common.empty()) parts.push_back("the same in all: " + joined(common, ", "));
  return joined(parts, "; ");
}

std::string HtmlTable::html(const std::string& caption) const {
  std::vector<bool> shown(columns_.size(), true);
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    const std::string& text = rows_.front().cells.at(column);
    const bool same = std::ranges::all_of(rows_, [&](const Row& row) { return row.cells.at(column) == text; });
    shown[column] = !same || (rows_.size() == 1 && !text.empty());
  }
  const std::string text = escaped(caption_text(caption, shown));
  // In a caption it would be as wide as the table, which may be wider than the page.
  const std::string note = text.empty() ? "" : "<p class=\"note\">" + text + ".</p>\n";
  std::string html = kind_ == Kind::main ? "" : note;
  html += fmt::format("<div class=\"scroll\"><table{}>", kind_ == Kind::main ? " class=\"main\"" : "");
  html += "<thead><tr>";
  const auto align = [&](std::size_t column) {
    if (columns_[column].wide) return " class=\"r wide\"";
    return columns_[column].align == Align::right ? " class=\"r\"" : "";
  };
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (!shown[column]) continue;
    html += fmt::format("<th scope=\"col\"{}>{}</th>", align(column), escaped(columns_[column].title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Row& row : rows_) {
    html += row.bold ? "<tr class=\"best\">" : "<tr>";
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (!shown[column]) continue;
      const std::string& cell = row.cells.at(column);
      html += fmt::format("<td{}>{}</td>", align(column), escaped(cell.empty() ? "–" : cell));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n" + (kind_ == Kind::main ? note : "");
}

Page page_of(const ReportData& data, const std::string& title) {
  Page page{{}, 0, rows_of(data)};
  std::vector<PagePart> parts;
  if (!data.eval.empty()) parts.push_back(eval_part(data.eval));
  if (!data.bench.empty()) parts.push_back(bench_part(data.bench));
  if (!data.distort.empty()) parts.push_back(distort_part(data.distort));
  // The policy lets nothing be loaded or run, whatever a file has smuggled in.
  page.html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<header><h1>{0}</h1></header>\n<main>\n{2}{3}",
      escaped(title), kPageStyle, summary_of(parts), list_of(parts));
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
  page.html += origins_of(data) + "</main>\n<footer>Made by rota report " ROTA_VERSION ".</footer>\n</body>\n</html>\n";
  return page;
}

}  // namespace rota::tool
