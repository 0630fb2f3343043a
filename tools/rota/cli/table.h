#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"

// How commands print what they found: as text, Markdown, CSV, JSON, or a JSON object per line.

namespace rota::tool {

using Json = nlohmann::ordered_json;

struct Column {
  std::string key;          // of a row, and the head of CSV
  std::string title;        // the head of text and Markdown
  std::string format = {};  // of a number, as fmt has it; "bytes" for 7.8 GiB, "percent" for 87 %
};

struct Table {
  std::vector<Column> columns;  // what text, Markdown and CSV show
  std::vector<Json> rows = {};  // objects; JSON shows them whole
};

// Columns in line, with blanks between or with Markdown's bars.
std::string table_text(const Table& table, Output output);

// What begins the JSON of a report: which report, its format, version, commit, build, date and command.
Json report_head(std::string_view report, const Invocation& invocation);

// JSON is `head` with the table's rows in it; what is neither JSON nor CSV has `before` and `after` around the table.
struct Report {
  Json head = {};
  Table table;
  std::string before = {}, after = {};
};

std::string report_text(const Report& report, Output output);

void print(const Report& report, Output output);

}  // namespace rota::tool
