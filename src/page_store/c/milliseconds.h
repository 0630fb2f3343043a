#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace rota::c {

// Any number of C's: what std::chrono cannot hold is as long as it can.
inline std::chrono::milliseconds milliseconds_of(std::uint64_t number) noexcept {
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int64_t>::max();
  return std::chrono::milliseconds(std::min(number, kLongest));
}

}  // namespace rota::c
