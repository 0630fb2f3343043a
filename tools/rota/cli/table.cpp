#include "cli/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "build_info.h"
#include "cli/characters.h"
#include "cli/options.h"
#include "cli/show.h"
#include "cli/written.h"
#include "rota/version.h"

namespace rota::tool {
namespace {

// What a terminal would obey is escaped, as JSON can: it is only in strings.
std::string dumped(const Json& json, int indent) {
  const std::string text = json.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string made;
  for (std::string_view left = text; !left.empty();) {
    const auto [code, bytes] = first_character(left);
    made += may_be_shown(code) ? std::string(left.substr(0, bytes)) : fmt::format("\\u{:04x}", std::min(code, 0xfffdU));
    left.remove_prefix(bytes);
  }
  return made;
}

std::string cell_text(const Json& row, const Column& column) {
  const auto found = row.find(column.key);
  if (found == row.end() || found->is_null()) return "-";
  if (found->is_string()) return one_line(found->get<std::string>());
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  if (found->is_array()) {
    std::string text;
    for (const Json& item : *found) {
      text += (text.empty() ? "" : " ") + (item.is_string() ? one_line(item.get<std::string>()) : dumped(item, -1));
    }
    return text;
  }
  if (!found->is_number()) return dumped(*found, -1);
  if (column.format == "bytes") return bytes_text(found->get<std::uint64_t>());
  if (column.format == "percent") return fmt::format("{:.0f} %", 100 * found->get<double>());
  if (column.format.empty()) return dumped(*found, -1);
  return fmt::format(fmt::runtime("{:" + column.format + "}"), found->get<double>());
}

// A cell that Markdown would take for two.
std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

std::string csv_cell(const Json& row, const Column& column) {
  const auto found = row.find(column.key);
  if (found == row.end() || found->is_null()) return "";
  std::string text = found->is_string() ? found->get<std::string>() : dumped(*found, -1);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

std::string csv_text(const Table& table) {
  std::string text;
  for (const Column& column : table.columns) text += (text.empty() ? "" : ",") + column.key;
  text += '\n';
  for (const Json& row : table.rows) {
    std::string line;
    for (std::size_t at = 0; at < table.columns.size(); ++at) {
      line += (at == 0 ? "" : ",") + csv_cell(row, table.columns[at]);
    }
    text += line + "\n";
  }
  return text;
}

bool is_right(const Table& table, const Column& column) {
  return std::ranges::any_of(table.rows, [&](const Json& row) {
    const auto found = row.find(column.key);
    return found != row.end() && found->is_number();
  });
}

}  // namespace

std::string table_text(const Table& table, Output output) {
  const bool bars = output == Output::md;
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) lines.front().push_back(bars ? escaped(column.title) : column.title);
  for (const Json& row : table.rows) {
    lines.emplace_back();
    for (const Column& column : table.columns) {
      const std::string text = cell_text(row, column);
      lines.back().push_back(bars ? escaped(text) : text);
    }
  }
  std::vector<std::size_t> widths(table.columns.size(), bars ? 3 : 1);
  for (const auto& cells : lines) {
    for (std::size_t at = 0; at < cells.size(); ++at) widths[at] = std::max(widths[at], length_of(cells[at]));
  }
  std::string text;
  for (std::size_t row = 0; row < lines.size(); ++row) {
    std::string line;
    for (std::size_t at = 0; at < widths.size(); ++at) {
      const std::string blanks(widths[at] - length_of(lines[row][at]), ' ');
      const bool right = is_right(table, table.columns[at]);
      line += (bars      ? "| "
               : at == 0 ? ""
                         : "  ") +
              (right ? blanks + lines[row][at] : lines[row][at] + blanks) + (bars ? " " : "");
    }
    line += bars ? "|" : "";
    while (line.ends_with(' ')) line.pop_back();
    text += line + "\n";
    if (row > 0 || !bars) continue;
    for (std::size_t at = 0; at < widths.size(); ++at) {
      const bool right = is_right(table, table.columns[at]);
      text += "|" + std::string(widths[at] + (right ? 1 : 2), '-') + (right ? ":" : "");
    }
    text += "|\n";
  }
  return text;
}

Json report_head(std::string_view report, const Invocation& invocation) {
  return {{"report", report},
          {"format", 1},
          {"version", ROTA_VERSION},
          {"commit", ROTA_COMMIT},
          {"build", ROTA_BUILD},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"command", one_line(invocation.command)}};
}

std::string report_text(const Report& report, Output output) {
  switch (output) {
    case Output::csv: return csv_text(report.table);
    case Output::json: {
      Json json = report.head;
      json["rows"] = report.table.rows;
      return dumped(json, 2) + "\n";
    }
    case Output::jsonl: {
      std::string lines;
      for (const Json& row : report.table.rows) lines += dumped(row, -1) + "\n";
      return lines;
    }
    default: return report.before + table_text(report.table, output) + report.after;
  }
}

void print(const Report& report, Output output) { write_out(report_text(report, output)); }

}  // namespace rota::tool
