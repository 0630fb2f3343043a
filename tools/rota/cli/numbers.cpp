#include "cli/numbers.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>

namespace rota::tool {

std::optional<std::uint64_t> parsed_whole(std::string_view text) {
  std::uint64_t number = 0;
  const char* const first = std::to_address(text.begin());
  const char* const last = std::to_address(text.end());
  const auto [end, error] = std::from_chars(first, last, number);
  return !text.empty() && end == last && error == std::errc{} ? std::optional(number) : std::nullopt;
}

std::optional<std::uint64_t> parsed_bytes(std::string_view text) {
  double number = 0;
  const char* const first = std::to_address(text.begin());
  const char* const last = std::to_address(text.end());
  const auto [end, error] = std::from_chars(first, last, number, std::chars_format::fixed);
  std::string unit;
  for (const char* at = end; at != last; ++at) {
    if (*at != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  constexpr std::string_view kPrefixes = "kmgtp";
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t prefix = kPrefixes.find(unit.front());
    const std::string rest = unit.substr(1);
    if (prefix == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) return {};
    for (std::size_t step = 0; step <= prefix; ++step) scale *= rest == "b" ? 1000 : 1024;
  }
  const double bytes = number * scale;
  if (error != std::errc{} || !(bytes >= 0) || bytes >= 0x1p63) return {};
  return static_cast<std::uint64_t>(bytes);
}

std::string with_commas(std::string digits) {
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t begin = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = point; at > begin + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace rota::tool
