#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/data.h"

// The page that `rota report` writes: HTML that is XML, too, with all that it needs inside.

namespace rota::tool {

// A heading and what stands below it.
struct Section {
  std::string id, title, html;
};

// What files of one kind give to the page. Warnings and findings are plain text.
struct PagePart {
  std::vector<std::string> warnings{}, findings{};
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

// Charts of one kind, side by side where there is room.
struct Panels {
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
  void add_column(std::string title, Align align) { columns_.push_back({std::move(title), align}); }
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }  // plain text
  std::string html(const std::string& caption) const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_{};
  std::vector<std::vector<std::string>> rows_{};
};

// "" for what is not known.
std::string number_text(const std::optional<double>& value);
std::string number_text(const std::optional<std::uint64_t>& value);

std::string joined(const std::vector<std::string>& parts, std::string_view separator);

// "turbo4", or "turbo4 / turbo2" where K and V differ.
std::string codec_pair(const std::string& k, const std::string& v);

// "1 row", "16,384 rows".
std::string counted(std::uint64_t count, std::string_view noun);

// Codecs in the order in which people think of them: dense ones first, then turbo2, turbo3, ...
bool codec_less(std::string_view a, std::string_view b);

}  // namespace rota::tool
