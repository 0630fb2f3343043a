// Dense elements in buffers of 32-bit words, by integer operations only: drivers differ in how they
// convert halves, denormals and NaN, and these bits must not. The twin of include/rota/dtype.h.

#include "codec/dense/dense.params.h"

// The half of a word that element `index` of a 16-bit type is.
#define HALF_OF(word, index) bitfieldExtract(word, int(((index) & 1u) << 4), 16)

// Buffers cannot be arguments of functions.
#define LOAD_ELEMENT(words, dtype, index) ((dtype) == kF32 ? words[index] : HALF_OF(words[(index) >> 1], index))

// Its word's other half belongs to another invocation or to nobody: only atomics leave it alone.
#define STORE_HALF(words, index, half_bits)                               \
  do {                                                                    \
    atomicAnd(words[(index) >> 1], ~(0xffffu << (((index) & 1u) << 4)));  \
    atomicOr(words[(index) >> 1], (half_bits) << (((index) & 1u) << 4)); \
  } while (false)

uint f32_bits_from_f16(uint bits16) {
  const uint sign = (bits16 & 0x8000u) << 16;
  const uint magnitude = bits16 & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | (magnitude > 0x7c00u ? 0x400000u : 0u);
  }
  if (magnitude >= 0x400u) return sign | ((magnitude << 13) + (112u << 23));
  if (magnitude == 0u) return sign;
  const uint top = uint(findMSB(magnitude));
  return sign | ((top + 103u) << 23) | ((magnitude << (23u - top)) & 0x7fffffu);
}

uint f16_from_f32_bits(uint bits) {
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  if (magnitude >= (143u << 23)) return sign | 0x7c00u;
  if (magnitude >= (113u << 23)) {
    return sign | ((magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
  }
  if (magnitude <= (102u << 23)) return sign;  // at most half of the smallest denormal
  const uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint shift = 126u - (magnitude >> 23);
  const uint kept = mantissa >> shift;
  const uint rest = mantissa & ((1u << shift) - 1u);
  const uint half_way = 1u << (shift - 1u);
  return sign | (kept + uint(rest > half_way || (rest == half_way && (kept & 1u) != 0u)));
}

uint bf16_from_f32_bits(uint bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// Elements are in the low bits. The types are constants, so one path survives.
uint widen_element(uint bits, uint from) {
  return from == kF32 ? bits : from == kF16 ? f32_bits_from_f16(bits) : bits << 16;
}

uint narrow_element(uint f32_bits, uint to) {
  return to == kF32 ? f32_bits : to == kF16 ? f16_from_f32_bits(f32_bits) : bf16_from_f32_bits(f32_bits);
}

uint convert_element(uint bits, uint from, uint to) {
  return from == to ? bits : narrow_element(widen_element(bits, from), to);
}

bool is_finite_element(uint bits, uint dtype) { return (bits & exponent_mask(dtype)) != exponent_mask(dtype); }
