#include "cli/lines.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "cli/numbers.h"

namespace rota::tool {
namespace {

constexpr std::size_t kLeastWidth = 20;  // of less, a line would be a word

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string wrapped_command(std::string_view line, std::size_t indent, std::size_t width) {
  const std::vector<std::string> words = words_of(line);
  constexpr std::size_t kFurther = 4;
  std::string text(indent, ' ');
  std::size_t column = indent;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool first = column == indent || column == indent + kFurther;
    const std::size_t behind = at + 1 < words.size() ? 2 : 0;  // room for a backslash
    if (!first && column + 1 + words[at].size() + behind > width) {
      text += " \\\n" + std::string(indent + kFurther, ' ') + words[at];
      column = indent + kFurther + words[at].size();
    } else {
      text += (at == 0 ? "" : " ") + words[at];
      column += (at == 0 ? 0 : 1) + words[at].size();
    }
  }
  return text;
}

std::string wrapped_line(const std::string& line, std::size_t width) {
  if (line.size() <= width) return line;
  const std::size_t indent = line.find_first_not_of(' ');
  const std::size_t end = std::min(line.find(' ', indent), line.size());
  const std::size_t text = line.find_first_not_of(' ', end);
  if (text != std::string::npos && text - end >= 2) {
    return line.substr(0, text) + wrapped(std::string_view(line).substr(text), {width, text, text});
  }
  return wrapped_command(line, indent, width);
}

std::string wrapped_paragraph(const std::vector<std::string>& lines, std::size_t width) {
  const bool fits = std::ranges::all_of(lines, [&](const std::string& line) { return line.size() <= width; });
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : fits ? "\n" : " ") + line;
  return fits ? text : wrapped(text, {width});
}

}  // namespace

std::size_t line_width() {
  std::size_t width = 0;
  const char* const columns = std::getenv("COLUMNS");
  if (columns != nullptr) width = parsed_whole(columns).value_or(0);
  winsize window{};
  if (width == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) width = window.ws_col;
  return width == 0 ? kUsualWidth : std::clamp(width, kLeastWidth, kUsualWidth);
}

std::string wrapped(std::string_view text, const Lines& lines) {
  std::string made;
  std::size_t column = lines.column;
  bool first = true;
  for (const std::string& word : words_of(text)) {
    const std::size_t blank = first ? 0 : 1;
    if (!first && column + blank + word.size() > lines.width) {
      made += "\n" + std::string(lines.indent, ' ') + word;
      column = lines.indent + word.size();
    } else {
      made += std::string(blank, ' ') + word;
      column += blank + word.size();
    }
    first = false;
  }
  return made;
}

std::string wrapped_footer(std::string_view footer, std::size_t width) {
  std::vector<std::string> parts;
  std::vector<std::string> paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) parts.push_back(wrapped_paragraph(paragraph, width));
    paragraph.clear();
  };
  std::istringstream stream{std::string(footer)};
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.front() != ' ') {
      paragraph.push_back(line);
      continue;
    }
    end_paragraph();
    parts.push_back(line.empty() ? line : wrapped_line(line, width));
  }
  end_paragraph();
  std::string text;
  for (std::size_t at = 0; at < parts.size(); ++at) text += (at == 0 ? "" : "\n") + parts[at];
  return text;
}

}  // namespace rota::tool
