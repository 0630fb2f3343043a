#pragma once

#include <cstdint>

#include "codec/turbo/page.shared.h"
#include "ops/seal/seal.params.h"

// What unseal's code for one instruction set works on, and what it offers.

namespace rota::ops {

struct UnsealScratch {
  alignas(64) float values[kMaxTurboDim];
  alignas(64) std::int32_t negated[kMaxTurboDim];
  alignas(64) std::int32_t mixed[kMaxTurboDim];
  alignas(64) std::int32_t other[kMaxTurboDim];
  alignas(64) std::uint8_t codes[kTileTokens * kMaxTurboDim];
};

struct UnsealCall {
  const SealParams& params;
  const std::uint32_t* table;
  const std::int32_t* levels;  // by code; 16 at least
};

// A token's codes, one byte each, to values in scratch.values.
using UnsealToken = void (*)(const UnsealCall&, const std::uint8_t* codes, float factor, const float* mean,
                             UnsealScratch&) noexcept;

inline constexpr float kNoMean[kMaxTurboDim] = {};

}  // namespace rota::ops
