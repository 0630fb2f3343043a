#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "report/data.h"
#include "report/words.h"

// The page that `rota report` writes: HTML that is XML, too, with all that it needs inside.

namespace rota::tool {

// A heading and what stands below it.
struct Section {
  std::string id, title, html;
};

// What files of one kind give to the page. Warnings and findings are plain text.
struct PagePart {
  std::string kind, title;
  std::vector<std::string> warnings{}, findings{};
  std::string answer{};  // what most readers came for: a table, and perhaps charts
  std::vector<Section> charts{}, tables{};
  std::size_t chart_count = 0;
};

PagePart bench_part(const std::vector<Bench>& files);
PagePart distort_part(const std::vector<Distort>& files);
PagePart eval_part(const std::vector<Eval>& files);

struct Page {
  std::string html;
  std::size_t charts, rows;
};
Page page_of(const ReportData& data, const std::string& title);

extern const char* const kPageStyle;

// A list of sentences; nothing if there are none.
std::string findings_html(const std::vector<std::string>& findings);

// Charts of one kind, side by side where there is room.
struct Panels {
  static constexpr std::size_t kMost = 8;  // more would be too much to look at; the tables have all

  std::string title, text;  // text says how to read them
  std::vector<std::string> figures{};
  std::size_t rows_left = 0;  // for which there was no room

  void add(const std::string& caption, const std::string& svg);
  std::string html() const;  // nothing if there are no figures
};

// Columns that say the same in every row are said once, above the table.
class HtmlTable {
 public:
  enum class Align { left, right };
  // main: few columns, which fit a telephone, with a note below them; all: whatever there is, below a note.
  enum class Kind { all, main };
  explicit HtmlTable(Kind kind = Kind::all) : kind_(kind) {}

  // What is wide is left out where there is no room.
  void add_column(std::string title, Align align, bool wide = false) {
    columns_.push_back({std::move(title), align, wide});
  }
  void add_row(std::vector<std::string> cells, bool bold = false) {  // plain text
    rows_.push_back({std::move(cells), bold});
  }
  std::string html(const std::string& caption) const;

 private:
  struct Column {
    std::string title;
    Align align;
    bool wide;
  };
  struct Row {
    std::vector<std::string> cells;
    bool bold;
  };
  std::string caption_text(const std::string& caption, const std::vector<bool>& shown) const;

  Kind kind_;
  std::vector<Column> columns_{};
  std::vector<Row> rows_{};
};

}  // namespace rota::tool
