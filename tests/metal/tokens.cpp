#include "tokens.h"

#include <algorithm>
#include <cctype>

namespace rota::test::metal {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where what begins at `at` ends, if it is to be left out; else `at`.
size_t end_of_skipped(std::string_view text, size_t at, bool line_start) {
  const auto after = [&](std::string_view end, size_t from) {
    const size_t found = text.find(end, from);
    return found == std::string_view::npos ? text.size() : found + end.size();
  };
  if (std::isspace(static_cast<unsigned char>(text[at]))) return at + 1;
  if (text.substr(at, 2) == "//" || (text[at] == '#' && line_start)) return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) == "/*") return after("*/", at + 2);
  if (text[at] == '"') return after("\"", at + 1);
  return at;
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  bool line_start = true;
  for (size_t at = 0; at < text.size();) {
    if (const size_t end = end_of_skipped(text, at, line_start); end != at) {
      line_start = line_start || text[at] == '\n';
      at = end;
      continue;
    }
    line_start = false;
    size_t end = at + 1;
    while (is_word(text[at]) && end < text.size() && is_word(text[end])) ++end;
    tokens.push_back({text.substr(at, end - at), at});
    at = end;
  }
  return tokens;
}

}  // namespace rota::test::metal
