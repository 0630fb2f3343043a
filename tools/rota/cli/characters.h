#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What texts of anyone's files are made of, before they reach a page or a terminal.

namespace rota::tool {

struct Character {
  std::uint32_t code;
  std::size_t bytes;
};

// The first character; code 0 for what is not UTF-8. Precondition: the text is not empty.
Character first_character(std::string_view text);

// Letters, not bytes.
std::size_t length_of(std::string_view text);

// Not control characters (C1's, from 0x80 on, among them), halves of pairs and noncharacters; nor marks that turn the
// direction of other text.
bool may_be_shown(std::uint32_t code);

}  // namespace rota::tool
