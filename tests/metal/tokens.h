#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace rota::test::metal {

struct Token {
  std::string_view text;
  size_t at;
};

// Names, numbers and single characters of a text of MSL; comments, strings and directives are left out.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace rota::test::metal
