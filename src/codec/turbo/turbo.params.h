#ifndef ROTA_CODEC_TURBO_PARAMS_H
#define ROTA_CODEC_TURBO_PARAMS_H

#include "core/shared.h"

ROTA_PARAMS_BEGIN

// A format's numbers as kernels get them: words of one table.
constexpr uint kSigns = 0u;        // 1024 bits: one for each dim that is negated
constexpr uint kHartleyRow = 32u;  // 15 integers
constexpr float kHartleyUnit = 1.0f / 8192.0f;
constexpr uint kInverses = 48u;    // three candidates: mantissa and exponent of each
constexpr uint kMagnitudes = 56u;  // 32, of the positive levels
constexpr uint kEdges = 88u;       // 31: the sum of two neighbours
constexpr uint kTableWords = 120u;

constexpr uint kUniformBits = 8u;  // levels are code - 128, up to the top
constexpr uint kUniformTop = 127u;

constexpr uint kCandidates = 3u;
constexpr uint kMiddleCandidate = 1u;  // the root mean square itself
constexpr uint kMaxTurboDim = 1024u;

// How a head vector of dim = m * 2^k is rotated: Hartley of m, Hadamard of 2^k.
struct RotationShape {
  uint m, k;
};

// What makes a Hadamard transform of 2^k values keep their length.
ROTA_SHARED float hadamard_factor(uint k) { return (k % 2u == 0u ? 1.0f : 0.70710678f) / float(1u << (k / 2u)); }

ROTA_PARAMS_END

#endif
