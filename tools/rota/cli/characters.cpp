#include "cli/characters.h"

#include <algorithm>
#include <array>

namespace rota::tool {

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {0, 1};
  std::uint32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xc0U) != 0x80) return {0, 1};
    code = (code << 6U) | (byte(at) & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  return code < kSmallest[bytes] ? Character{0, 1} : Character{code, bytes};
}

std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0U) != 0x80; }));
}

bool may_be_shown(std::uint32_t code) {
  const auto in = [&](std::uint32_t first, std::uint32_t last) { return code >= first && code <= last; };
  if (code < 0x20) return code == '\n' || code == '\t';
  const bool turns = code == 0x61c || in(0x200e, 0x200f) || in(0x202a, 0x202e) || in(0x2066, 0x2069);
  const bool ends_line = in(0x2028, 0x2029);
  return !in(0x7f, 0x9f) && !turns && !ends_line && !in(0xd800, 0xdfff) && !in(0xfdd0, 0xfdef) &&
         (code & 0xfffeU) != 0xfffe && code <= 0x10ffff;
}

}  // namespace rota::tool
