#include "cli/numbers.h"

#include <algorithm>
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
