#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Tables of figures: sections of docs/gpu.md, written and read by rota_gpu_cost alone.

namespace rota::test {

struct Column {
  std::string heading;
  int decimals = 0;
};

struct Row {
  std::vector<std::string> labels;
  std::vector<double> figures;

  friend bool operator==(const Row&, const Row&) = default;
};

struct Table {
  std::vector<std::string> labels;  // headings
  std::vector<Column> columns;
  std::vector<Row> rows = {};

  friend bool operator==(const Table& a, const Table& b) { return a.rows == b.rows; }
};

std::string name_of(const Row& row);
std::string text_of(const Table& table);
std::string text_of(const Table& head, const Row& row);

// The part of a document between "<!-- <name> -->" and "<!-- end -->". Both throw where there is none.
std::string section_of(const std::string& document, std::string_view name);
std::string with_section(const std::string& document, std::string_view name, std::string_view section);

// The rows in a section, of a table with this head. Throws where a line of the table is none.
std::vector<Row> rows_of(const Table& head, const std::string& section);

// A sentence for each figure that left the accepted one by more than kTolerancePercent, up or down, and for each row
// that one side has alone.
inline constexpr double kTolerancePercent = 3;
std::vector<std::string> differences(std::span<const Row> accepted, const Table& measured);

}  // namespace rota::test
