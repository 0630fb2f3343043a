#include "gpu_cost/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace rota::test {
namespace {

constexpr std::string_view kSeparator = " | ";
constexpr std::string_view kEnd = "<!-- end -->";

struct Place {
  std::size_t begin, size;
};

Place place_of(const std::string& document, std::string_view chip) {
  const std::string mark = fmt::format("<!-- {} -->\n", chip);
  const std::size_t found = document.find(mark);
  const std::size_t begin = found + mark.size();
  const std::size_t end = found == std::string::npos ? found : document.find(kEnd, begin);
  if (end == std::string::npos) {
    throw std::runtime_error(fmt::format("there is no section \"<!-- {} -->\" to \"{}\"", chip, kEnd));
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

Row row_of(std::string_view line) {
  const std::vector<std::string> cells = cells_of(line);
  Row row;
  bool sound = cells.size() == 2 + row.cost.size();
  for (std::size_t i = 0; sound && i < row.cost.size(); ++i) {
    const std::string& cell = cells[2 + i];
    const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), row.cost[i]);
    sound = code == std::errc{} && end == cell.data() + cell.size();
  }
  if (!sound) throw std::runtime_error(fmt::format("\"{}\" is no row of this table", line));
  row.kernel = cells[0];
  row.call = cells[1];
  return row;
}

const Row* find(std::span<const Row> rows, const Row& wanted) {
  const auto found = std::ranges::find(rows, name_of(wanted), name_of);
  return found != rows.end() ? &*found : nullptr;
}

bool tolerable(std::uint64_t accepted, std::uint64_t measured) {
  const std::uint64_t change = accepted > measured ? accepted - measured : measured - accepted;
  return 100 * change <= kTolerancePercent * accepted;
}

}  // namespace

std::string name_of(const Row& row) { return fmt::format("{} ({})", row.kernel, row.call); }

std::string text_of(const Row& row) {
  return fmt::format("| {} | {} | {} |\n", row.kernel, row.call, fmt::join(row.cost, kSeparator));
}

std::string text_of(std::span<const Row> rows) {
  std::string head = "| kernel | call |";
  std::string line = "|---|---|";
  for (const Figure& figure : kFigures) {
    head += fmt::format(" {} |", figure.heading);
    line += "---:|";
  }
  std::string text = head + "\n" + line + "\n";
  for (const Row& row : rows) text += text_of(row);
  return text;
}

std::string section_of(const std::string& document, std::string_view chip) {
  const auto [begin, size] = place_of(document, chip);
  return document.substr(begin, size);
}

std::string with_section(const std::string& document, std::string_view chip, std::string_view section) {
  const auto [begin, size] = place_of(document, chip);
  return std::string(document).replace(begin, size, section);
}

std::vector<Row> rows_of(const std::string& section) {
  std::vector<Row> rows;
  std::istringstream lines(section);
  bool in_head = true;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) continue;
    if (!in_head) rows.push_back(row_of(line));
    in_head = in_head && !line.starts_with("|---");
  }
  return rows;
}

std::vector<std::string> differences(std::span<const Row> accepted, std::span<const Row> measured) {
  std::vector<std::string> found;
  for (const Row& row : measured) {
    const Row* const known = find(accepted, row);
    if (known == nullptr) found.push_back(name_of(row) + ": is not in the table");
    for (std::size_t i = 0; known != nullptr && i < kFigures.size(); ++i) {
      if (tolerable(known->cost[i], row.cost[i])) continue;
      found.push_back(
          fmt::format("{}, {}: {}; the table has {}", name_of(row), kFigures[i].heading, row.cost[i], known->cost[i]));
    }
  }
  for (const Row& row : accepted) {
    if (find(measured, row) == nullptr) {
      found.push_back(name_of(row) + ": is in the table, and no call runs it");
    }
  }
  return found;
}

}  // namespace rota::test
