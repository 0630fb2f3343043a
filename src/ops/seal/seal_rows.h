#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
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

struct SealCall {
  const SealParams& params;
  const std::uint32_t* table;
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
