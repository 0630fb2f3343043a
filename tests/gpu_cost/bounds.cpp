#include "gpu_cost/bounds.h"

#include <fmt/format.h>

#include <algorithm>

namespace rota::test {
namespace {

bool is_meant(const Bound& bound, const Row& row) {
  const std::string name = name_of(row);
  return name.starts_with(bound.rows) && name.find(bound.and_with) != std::string::npos;
}

}  // namespace

std::vector<std::string> broken_bounds(const std::vector<Table>& tables) {
  std::vector<std::string> broken;
  for (const Bound& bound : kBounds) {
    bool has_column = false, has_row = false;
    for (const Table& table : tables) {
      const auto column = std::ranges::find(table.columns, bound.column, &Column::heading);
      if (column == table.columns.end()) continue;
      has_column = true;
      for (const Row& row : table.rows) {
        if (!is_meant(bound, row)) continue;
        has_row = true;
        const double figure = row.figures[static_cast<std::size_t>(column - table.columns.begin())];
        if (figure <= bound.most) continue;
        broken.push_back(fmt::format("{}, {}: {:.1f}, which must not be above {} ({})", name_of(row), bound.column,
                                     figure, bound.most, bound.meaning));
      }
    }
    if (has_column && !has_row) {
      broken.push_back(fmt::format("no row \"{}...{}\" has \"{}\"", bound.rows, bound.and_with, bound.column));
    }
  }
  return broken;
}

}  // namespace rota::test
