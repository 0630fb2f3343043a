#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "rota/device.h"

// Numbers as commands take and show them.

namespace rota::tool {

// Digits alone: nothing of "", "-1" and "12 ", nor of 2^64 and more.
std::optional<std::uint64_t> parsed_whole(std::string_view text);

// "8GiB", "4.5 GB", "1000", as bytes. As llama.cpp and most tools have it, "G" alone is 2^30.
std::optional<std::uint64_t> parsed_bytes(std::string_view text);

inline constexpr std::string_view kWantedBytes = "bytes below 2^63, such as 8GiB, 4.5GB or 123456";

// "1,234,567.25" of "1234567.25".
std::string with_commas(std::string digits);

// The largest number where the sum is none.
constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a + b < a ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

// What a command takes of a device's memory, at most.
constexpr std::uint64_t most_memory(const DeviceInfo& device) { return device.memory_bytes / 5 * 4; }

}  // namespace rota::tool
