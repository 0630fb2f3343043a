#pragma once

#include <algorithm>
#include <chrono>

namespace rota::core {

// How long a caller wants to wait. What is longer than a year is a year, so that it can be added to a time.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds wait) noexcept {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  return std::clamp(wait, -kLongest, kLongest);
}

}  // namespace rota::core
