#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "rota/result.h"

// JSON from anywhere, for what reads configurations.

namespace rota::tool {

inline constexpr std::size_t kMostJsonNesting = 64;
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{4} << 20;

// An object, nested at most kMostJsonNesting deep. Errors are of Errc::io and name the byte; a text that ends too early
// is called truncated.
Result<nlohmann::json> parse_config_json(std::string_view text);

// "a", clipped where it is long: a file's own words in a message.
std::string in_quotes(std::string_view text);

// What a message says of a value: a number or a word as it is, else its type.
std::string value_text(const nlohmann::json& value);

}  // namespace rota::tool
