// The integers that decide a page's bytes, for C++ and GLSL alike. docs/page-format.md defines every step and proves
// its range.

#ifndef ROTA_CODEC_TURBO_ARITHMETIC_SHARED_H
#define ROTA_CODEC_TURBO_ARITHMETIC_SHARED_H

#include "codec/turbo/turbo.params.h"
#include "core/shared.h"

#if defined(__cplusplus)
#include <algorithm>
#include <bit>
#include <cmath>
#endif

ROTA_PARAMS_BEGIN

constexpr uint kMaxMagnitude = 32767u;
constexpr uint kMaxTwice = 255u;  // beyond every edge

struct Product {
  uint upper, lower;
};
struct Quotient {
  uint value;
  bool rest;
};

#if defined(__cplusplus)
inline int top_bit(uint value) { return static_cast<int>(std::bit_width(value)) - 1; }
inline Product multiply(uint a, uint b) {
  const std::uint64_t product = std::uint64_t{a} * b;
  return {static_cast<uint>(product >> 32), static_cast<uint>(product)};
}
// a * 2^13 / b for a, b in [2^30, 2^31)
inline Quotient divide(uint a, uint b) {
  const std::uint64_t shifted = std::uint64_t{a} << 13;
  return {static_cast<uint>(shifted / b), shifted % b != 0};
}
inline uint square_root(uint value) { return static_cast<uint>(std::sqrt(static_cast<double>(value))); }
using std::max;
using std::min;
#else
int top_bit(uint value) { return findMSB(value); }
Product multiply(uint a, uint b) {
  Product product;
  umulExtended(a, b, product.upper, product.lower);
  return product;
}
Quotient divide(uint a, uint b) {
  uint quotient = 0u;
  for (int i = 0; i < 14; i++) {
    const bool fits = a >= b;
    a = (a - (fits ? b : 0u)) << 1;
    quotient = quotient << 1 | uint(fits);
  }
  return Quotient(quotient, a != 0u);
}
uint square_root(uint value) {
  uint root = 0u;
  for (uint bit = 1u << 15; bit != 0u; bit >>= 1) {
    if ((root | bit) * (root | bit) <= value) root |= bit;
  }
  return root;
}
#endif

// upper * 2^20 + lower, for what 32 bits do not hold. After `carried`, lower is in [0, 2^20).
struct Limbs {
  int upper, lower;
};
ROTA_SHARED Limbs carried(Limbs x) { return Limbs(x.upper + (x.lower >> 20), x.lower & 0xfffff); }
ROTA_SHARED Limbs negated(Limbs x) { return carried(Limbs(-x.upper, -x.lower)); }

// The f16 nearest to (value + something in (0, 1) if `rest`) * 2^exponent, ties to even, at most 65504. At least one
// bit of `value` lies below the result's last place.
ROTA_SHARED uint half_from(uint value, bool rest, int exponent) {
  if (value == 0u) return 0u;
  const int top = top_bit(value) + exponent;
  const int dropped = min((top < -14 ? -24 : top - 10) - exponent, 31);
  const uint half_way = 1u << (dropped - 1);
  const uint below = value & (2u * half_way - 1u);
  uint kept = value >> dropped;
  if (below > half_way || (below == half_way && (rest || (kept & 1u) != 0u))) kept++;
  return min(top < -14 ? kept : (uint(top + 14) << 10) + kept, 0x7bffu);
}

// The f16 nearest to sum / count * 2^-24; count is from 1 to 128. Never -0.
ROTA_SHARED uint mean_from(Limbs sum, uint count) {
  Limbs magnitude = carried(sum);
  const bool negative = magnitude.upper < 0;
  if (negative) magnitude = negated(magnitude);
  // Long division of twice the sum, in digits of 2^21.
  const uint upper = uint(magnitude.upper) / count;
  const uint left = ((uint(magnitude.upper) - upper * count) << 21) + 2u * uint(magnitude.lower);
  const uint lower = left / count;
  const bool rest = left != lower * count;
  const uint bits =
      upper >= 2048u ? half_from(upper, rest || lower != 0u, -4) : half_from(upper << 21 | lower, rest, -25);
  return negative && bits != 0u ? bits | 0x8000u : bits;
}

// Twice a magnitude in steps: magnitude * factor >> shift. The factor is below 2^16, the shift from 16 to 31.
struct Inverse {
  uint factor, shift;
};

ROTA_SHARED Inverse inverse_from(uint factor, int shift) {
  return shift < 16 ? Inverse(factor >> min(16 - shift, 16), 16u) : Inverse(factor, uint(min(shift, 31)));
}

ROTA_SHARED uint twice_in_steps(uint magnitude, Inverse inverse) {
  return min(magnitude * inverse.factor >> inverse.shift, kMaxTwice);
}

// The sum of squares as root^2 * 2^(2 * exponent), root in [2^15, 2^16); upper * 2^16 + lower is at least 2^24.
struct Length {
  uint root;
  int exponent;
};
ROTA_SHARED Length length_from(uint upper, uint lower) {
  upper += lower >> 16;
  lower &= 0xffffu;
  const int half_bits = (upper != 0u ? 16 + top_bit(upper) : top_bit(lower)) >> 1;
  const int dropped = 2 * half_bits - 30;
  const uint kept = dropped >= 0 ? upper << (16 - dropped) | lower >> dropped : (upper << 16 | lower) << -dropped;
  return Length(square_root(kept), half_bits - 15);
}

// Of the step that goes with a length: 2 sqrt(m) 2^(k/2) / (length * unit * candidate), the constants as
// mantissa * 2^-exponent, the whole power of 2^(k/2) apart.
ROTA_SHARED Inverse inverse_of_length(Length of_values, uint mantissa, uint exponent, uint half_k) {
  return inverse_from((mantissa >> 1) / of_values.root, int(exponent - half_k) - 1 + of_values.exponent);
}

// Of levels chosen for values z: <z, levels> and <levels, levels>.
struct Fit {
  uint dot, norm;
};

// Of the least-squares step, dot / norm.
ROTA_SHARED Inverse inverse_of_fit(Fit fit) {
  const int dot_top = top_bit(fit.dot);
  const int norm_top = top_bit(fit.norm);
  const uint dot16 = dot_top >= 15 ? fit.dot >> (dot_top - 15) : fit.dot << (15 - dot_top);
  return inverse_from((fit.norm << (30 - norm_top)) / dot16, dot_top - norm_top + 14);
}

// Of the step that makes a uniform table's last level of the largest magnitude: 2 * 127 / largest.
ROTA_SHARED Inverse inverse_of_largest(uint largest) {
  const int top = top_bit(largest);
  return inverse_from((2u * kUniformTop << 22) / (largest << (15 - top)), top + 7);
}

struct Cube {
  uint upper, middle, lower;
};
ROTA_SHARED Cube square_times(uint a, uint b) {
  const Product square = multiply(a, a);
  const Product lower = multiply(square.lower, b);
  const Product upper = multiply(square.upper, b);
  const uint middle = upper.lower + lower.upper;
  return Cube(upper.upper + uint(middle < upper.lower), middle, lower.lower);
}

// Whether a's least-squares error is less than b's: a.dot^2 / a.norm > b.dot^2 / b.norm.
ROTA_SHARED bool fits_better(Fit a, Fit b) {
  const Cube x = square_times(a.dot, b.norm);
  const Cube y = square_times(b.dot, a.norm);
  return x.upper != y.upper ? x.upper > y.upper : x.middle != y.middle ? x.middle > y.middle : x.lower > y.lower;
}

// mantissa * 2^exponent, mantissa in [2^30, 2^31).
struct Normal {
  uint mantissa;
  int exponent;
};
ROTA_SHARED Normal normal_of(uint value) {
  const int top = top_bit(value);
  return top == 31 ? Normal(value >> 1, 1) : Normal(value << (30 - top), top - 30);
}

// numerator / denominator * 2^(exponent - k / 2) as f16, at most 65504.
ROTA_SHARED uint scale_from(uint numerator, uint denominator, int exponent, uint k) {
  const Normal above = normal_of(numerator);
  Normal below = normal_of(denominator);
  if ((k & 1u) != 0u) {
    const Normal times_root = normal_of(multiply(below.mantissa << 1, 0xb504f334u).upper);  // 2^31.5
    below = Normal(times_root.mantissa, times_root.exponent + below.exponent);
  }
  const Quotient quotient = divide(above.mantissa, below.mantissa);
  return half_from(quotient.value, quotient.rest, above.exponent - below.exponent - 13 + exponent - int(k >> 1));
}

ROTA_PARAMS_END

#endif
