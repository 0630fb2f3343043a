// Included by attend_kernels.cpp through core/for_each_isa.h. Rows are whole row steps, zero beyond their dims.

#include "codec/dense/lanes.h"
#include "codec/turbo/rotation_lanes.h"

namespace rota::ops::ROTA_ISA {

namespace lanes = codec::ROTA_ISA;
using lanes::F32s;
using lanes::I32s;
using lanes::kLanes;
using lanes::multiply_add;
using lanes::U32s;

ROTA_LANES_INLINE void fetch(const void* at) noexcept { __builtin_prefetch(at, 0, 3); }
ROTA_LANES_INLINE void fetch(std::uintptr_t at) noexcept {
  fetch(reinterpret_cast<const void*>(at));  // NOLINT(performance-no-int-to-ptr): no one reads it
}

ROTA_LANES float dot(const float* a, const float* b, std::uint64_t dim) noexcept {
  F32s sum = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    sum = multiply_add(lanes::load_bits<F32s>(a + i), lanes::load_bits<F32s>(b + i), sum);
  }
  return lanes::fold<lanes::Sum>(sum);
}

ROTA_LANES void add_scaled(float* sum, const float* row, float factor, std::uint64_t dim) noexcept {
  const F32s factors = F32s{} + factor;
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    lanes::store_bits(multiply_add(lanes::load_bits<F32s>(row + i), factors, lanes::load_bits<F32s>(sum + i)), sum + i);
  }
}

ROTA_LANES void scale(float* row, float factor, std::uint64_t dim) noexcept {
  for (std::uint64_t i = 0; i < dim; i += kLanes) lanes::store_bits(lanes::load_bits<F32s>(row + i) * factor, row + i);
}

ROTA_LANES void hadamard(float* values, std::uint64_t dim, std::uint64_t size) noexcept {
  lanes::hadamard(reinterpret_cast<F32s*>(values), dim, size);
}

// Of numbers up to 0; below -125, 0.
ROTA_LANES_INLINE F32s exp2_of(F32s x) noexcept {
  x = x < -125.0F ? F32s{} - 127.0F : x;  // whose power has the exponent, and so the bits, of 0
  const F32s shifted = x + 12582912.0F;   // 1.5 * 2^23: its last bits are the nearest integer
  const F32s rest = x - (shifted - 12582912.0F);
  F32s power = multiply_add(F32s{} + 1.5403530e-4F, rest, F32s{} + 1.3333558e-3F);
  power = multiply_add(power, rest, F32s{} + 9.6181291e-3F);
  power = multiply_add(power, rest, F32s{} + 5.5504109e-2F);
  power = multiply_add(power, rest, F32s{} + 2.4022651e-1F);
  power = multiply_add(power, rest, F32s{} + kLogOf2);
  power = multiply_add(power, rest, F32s{} + 1.0F);
  const auto exponent = lanes::same_bits<I32s>(shifted) << 23;
  return lanes::same_bits<F32s>(lanes::same_bits<I32s>(power) + exponent);
}

ROTA_LANES float exponentiate(float* logits, std::uint64_t count, float top) noexcept {
  F32s sum = {};
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const F32s power = exp2_of(lanes::load_bits<F32s>(logits + i) - top);
    lanes::store_bits(power, logits + i);
    sum += power;
  }
  return lanes::fold<lanes::Sum>(sum);
}

// Four at a time, so that none waits for another.
ROTA_LANES float largest(const float* logits, std::uint64_t count, float top) noexcept {
  F32s most[4] = {F32s{} + top, F32s{} + top, F32s{} + top, F32s{} + top};
  for (std::uint64_t i = 0; i < count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::uint64_t j = 0; j < 4; ++j) {
      most[j] = lanes::Largest::of(lanes::load_bits<F32s>(logits + i + j * kLanes), most[j]);
    }
  }
  return lanes::fold<lanes::Largest>(
      lanes::Largest::of(lanes::Largest::of(most[0], most[1]), lanes::Largest::of(most[2], most[3])));
}

ROTA_LANES float largest_magnitude(const float* numbers, std::uint64_t count) noexcept {
  U32s most = {};
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const U32s bits = lanes::load_bits<U32s>(numbers + i) & 0x7fffffffU;  // in the order of magnitudes, NaN last
    most = bits > most ? bits : most;
  }
  std::uint32_t largest = 0;
  for (std::uint64_t i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
  return lanes::same_bits<float>(largest);
}

}  // namespace rota::ops::ROTA_ISA

#include "ops/attend/dense_lanes.h"
#include "ops/attend/tile_lanes.h"

namespace rota::ops::ROTA_ISA {

inline constexpr AttendLanes kAttendLanes{dot,     add_scaled,        scale,       hadamard,  exponentiate,
                                          largest, largest_magnitude, kDenseLanes, kTileLanes};

}  // namespace rota::ops::ROTA_ISA
