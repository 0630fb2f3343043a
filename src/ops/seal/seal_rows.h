#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "codec/dense/rows.h"
#include "codec/turbo/arithmetic.shared.h"
#include "ops/seal/seal.params.h"

// What seal's code for one instruction set works on, and what it offers.

namespace rota::ops {

inline constexpr std::uint64_t kTokensTogether = 4;
inline constexpr std::uint64_t kSlack = 64;  // behind what registers take whole

struct TokenScratch {
  alignas(64) std::uint16_t row[kMaxTurboDim];
  alignas(64) float values[kMaxTurboDim];
  alignas(64) double centred[kMaxTurboDim];
  alignas(64) std::int32_t mixed[kMaxTurboDim];
  alignas(64) std::int32_t other[kMaxTurboDim];
  alignas(64) std::int16_t reduced[kMaxTurboDim + kSlack];
};

// How many edges between levels may lie in 16 of the 256 numbers that are twice a magnitude in steps.
constexpr std::size_t edges_of_cell(std::uint32_t bits) noexcept {
  return bits == kUniformBits ? 0 : bits <= 4 ? 1 : bits == 5 ? 2 : 4;
}

// For each of 16 cells: the level at its beginning, how many are closer to zero, and each edge in it, less one, with
// the step to the level behind it.
struct LevelCells {
  static constexpr std::size_t kCells = 16, kWidth = 16;

  alignas(16) std::uint8_t level[kCells] = {}, index[kCells] = {};
  alignas(16) std::uint8_t before_edges[edges_of_cell(6)][kCells], steps[edges_of_cell(6)][kCells] = {};

  LevelCells(const std::uint32_t* table, std::uint32_t bits) noexcept {
    std::memset(before_edges, kMaxTwice, sizeof(before_edges));  // which nothing is beyond
    if (bits == kUniformBits) return;
    const std::uint32_t* const magnitudes = table + kMagnitudes;
    const std::uint32_t* const edges = table + kEdges;
    const std::size_t count = (std::size_t{1} << (bits - 1)) - 1;
    for (std::size_t cell = 0, next = 0; cell < kCells; ++cell) {
      while (next < count && edges[next] <= cell * kWidth) ++next;
      level[cell] = static_cast<std::uint8_t>(magnitudes[next]);
      index[cell] = static_cast<std::uint8_t>(next);
      for (std::size_t i = 0; next + i < count && edges[next + i] < (cell + 1) * kWidth; ++i) {
        assert(i < edges_of_cell(bits));
        before_edges[i][cell] = static_cast<std::uint8_t>(edges[next + i] - 1);
        steps[i][cell] = static_cast<std::uint8_t>(magnitudes[next + i + 1] - magnitudes[next + i]);
      }
    }
  }
};

struct SealCall {
  const SealParams& params;
  const std::uint32_t* table;
  const LevelCells& cells;
  const std::int32_t* negated;  // -1 where the rotation negates
  const double* mean;
};

// Tokens that are sealed together: rows of finite halves, one scratch each, and what becomes of them.
struct TokenRows {
  const std::byte* const* rows;
  std::uint64_t count;
  TokenScratch* scratch;
  std::uint8_t* codes;  // [token][dim]
  std::uint32_t* scales;
};

struct SealRows {
  using SealTokens = void (*)(const SealCall&, const TokenRows&) noexcept;

  void (*add_row)(const std::byte* row, std::uint64_t dim, double* sums) noexcept;
  std::array<SealTokens, 6> seal_tokens;  // of 2, 3, 4, 5, 6 and 8 bits
};

// Of a positive, normal number.
inline int exponent_of(double value) noexcept {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52) - 1023;
}
inline double power_of_two(int exponent) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

}  // namespace rota::ops
