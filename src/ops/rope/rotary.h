#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/rope/rope.params.h"
#include "rota/ops.h"

// What a Rotary means for heads of one size: a table of pairs, by plain arithmetic in f64.

namespace rota::ops {

inline constexpr std::string_view kRopeName = "rope";
inline constexpr std::uint64_t kMaxHeadDim = 4096;  // what a CPU kernel's scratch holds
inline constexpr std::size_t kMaxAxes = 4;

// Radians per position. Beyond it f64's rounding of a frequency would show at the last position.
inline constexpr double kMaxFrequency = 2;

struct PairTable {
  std::vector<std::uint32_t> words;  // kPairColumns columns
  std::uint32_t pairs = 0;
  std::uint32_t axes = 1;
  std::uint32_t unit = kOnePair;
  float magnitude = 1;

  const std::uint32_t* column(std::uint32_t index) const noexcept { return words.data() + std::size_t{index} * pairs; }
};

// Refuses every bad field of `rotary`. Precondition: rope_dim is even, from 2 to kMaxHeadDim.
Result<PairTable> pair_table(const Rotary& rotary, std::uint64_t rope_dim);

}  // namespace rota::ops
