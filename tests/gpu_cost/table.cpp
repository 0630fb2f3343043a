#include "gpu_cost/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace rota::test {
namespace {

constexpr std::string_view kSeparator = " | ";
constexpr std::string_view kEnd = "<!-- end -->";

struct Place {
  std::size_t begin, size;
};

Place place_of(const std::string& document, std::string_view name) {
  const std::string mark = fmt::format("<!-- {} -->\n", name);
  const std::size_t found = document.find(mark);
  const std::size_t begin = found + mark.size();
  const std::size_t end = found == std::string::npos ? found : document.find(kEnd, begin);
  if (end == std::string::npos) {
    throw std::runtime_error(fmt::format("there is no section \"<!-- {} -->\" to \"{}\"", name, kEnd));
  }
  return {begin, end - begin};
}

// "| a | b |" has the cells a and b.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t at = 2; at < line.size();) {
    const std::size_t end = std::min(line.find(" |", at), line.size());
    cells.emplace_back(line.substr(at, end - at));
    at = end + kSeparator.size();
  }
  return cells;
}

Row row_of(const Table& head, std::string_view line) {
  const std::vector<std::string> cells = cells_of(line);
  bool sound = cells.size() == head.labels.size() + head.columns.size();
  Row row;
  for (const std::string& cell : cells) {
    if (row.labels.size() < head.labels.size()) {
      row.labels.push_back(cell);
      continue;
    }
    double& figure = row.figures.emplace_back();
    const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), figure, std::chars_format::fixed);
    const int decimals = sound ? head.columns[row.figures.size() - 1].decimals : 0;
    sound = sound && code == std::errc{} && end == cell.data() + cell.size() &&
            fmt::format("{:.{}f}", figure, decimals) == cell;
  }
  if (!sound) throw std::runtime_error(fmt::format("\"{}\" is no row of this table", line));
  return row;
}

const Row* find(std::span<const Row> rows, const Row& wanted) {
  const auto found = std::ranges::find(rows, name_of(wanted), name_of);
  return found != rows.end() ? &*found : nullptr;
}

bool tolerable(double accepted, double measured) {
  return 100 * std::abs(accepted - measured) <= kTolerancePercent * std::abs(accepted);
}

// As the table has it.
double rounded(double figure, const Column& column) {
  const double unit = std::pow(10.0, column.decimals);
  return std::round(figure * unit) / unit;
}

}  // namespace

std::string name_of(const Row& row) {
  const std::span<const std::string> labels(row.labels);
  if (labels.size() < 2) return fmt::format("{}", fmt::join(labels, ""));
  return fmt::format("{} ({})", labels[0], fmt::join(labels.subspan(1), ", "));
}

std::string text_of(const Table& head, const Row& row) {
  std::string text = fmt::format("| {} |", fmt::join(row.labels, kSeparator));
  for (std::size_t i = 0; i < row.figures.size(); ++i) {
    text += fmt::format(" {:.{}f} |", rounded(row.figures[i], head.columns[i]), head.columns[i].decimals);
  }
  return text + "\n";
}

std::string text_of(const Table& table) {
  std::string head = fmt::format("| {} |", fmt::join(table.labels, kSeparator));
  std::string line = "|";
  for (std::size_t i = 0; i < table.labels.size(); ++i) line += "---|";
  for (const Column& column : table.columns) {
    head += fmt::format(" {} |", column.heading);
    line += "---:|";
  }
  std::string text = head + "\n" + line + "\n";
  for (const Row& row : table.rows) text += text_of(table, row);
  return text;
}

std::string section_of(const std::string& document, std::string_view name) {
  const auto [begin, size] = place_of(document, name);
  return document.substr(begin, size);
}

std::string with_section(const std::string& document, std::string_view name, std::string_view section) {
  const auto [begin, size] = place_of(document, name);
  return std::string(document).replace(begin, size, section);
}

std::vector<Row> rows_of(const Table& head, const std::string& section) {
  std::vector<Row> rows;
  std::istringstream lines(section);
  bool in_head = true;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) continue;
    if (!in_head) rows.push_back(row_of(head, line));
    in_head = in_head && !line.starts_with("|---");
  }
  return rows;
}

std::vector<std::string> differences(std::span<const Row> accepted, const Table& measured) {
  std::vector<std::string> found;
  for (const Row& row : measured.rows) {
    const Row* const known = find(accepted, row);
    if (known == nullptr) found.push_back(name_of(row) + ": is not in the table");
    for (std::size_t i = 0; known != nullptr && i < measured.columns.size(); ++i) {
      const Column& column = measured.columns[i];
      if (tolerable(known->figures[i], rounded(row.figures[i], column))) continue;
      found.push_back(fmt::format("{}, {}: {:.{}f}; the table has {:.{}f}", name_of(row), column.heading,
                                  rounded(row.figures[i], column), column.decimals, known->figures[i],
                                  column.decimals));
    }
  }
  for (const Row& row : accepted) {
    if (find(measured.rows, row) == nullptr) {
      found.push_back(name_of(row) + ": is in the table, and no call runs it");
    }
  }
  return found;
}

}  // namespace rota::test
