#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace rota::c {

// Any number of C's: what is longer than 24 days is that long, so that it can be added to a time.
inline std::chrono::milliseconds milliseconds_of(std::uint64_t number) noexcept {
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int32_t>::max();
  return std::chrono::milliseconds(std::min(number, kLongest));
}

}  // namespace rota::c
