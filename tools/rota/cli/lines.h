#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text in lines that fit where it is read.

namespace rota::tool {

inline constexpr std::size_t kUsualWidth = 100;

// Letters of a line: COLUMNS, else what the terminal has, if stdout is one; never more than kUsualWidth.
std::size_t line_width();

struct Lines {
  std::size_t width;
  std::size_t column = 0;  // where the first line goes on
  std::size_t indent = 0;  // of later lines
};

// Only a word that is longer than a line goes beyond it.
std::string wrapped(std::string_view text, const Lines& lines);

// Paragraphs that are too wide are filled anew. An indented line keeps its indent: the text of "  2  wrong usage" hangs
// below itself, and what is a command goes on behind a backslash.
std::string wrapped_footer(std::string_view footer, std::size_t width);

}  // namespace rota::tool
