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

constexpr std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

// Into the second cache.
ROTA_LANES_INLINE void fetch(std::uintptr_t at) noexcept {
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);  // NOLINT(performance-no-int-to-ptr): no one reads it
}
ROTA_LANES_INLINE void fetch(const std::byte* at) noexcept { fetch(reinterpret_cast<std::uintptr_t>(at)); }

ROTA_LANES float dot(const float* a, const float* b, std::uint64_t dim) noexcept {
  F32s sum = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    sum = multiply_add(lanes::load_bits<F32s>(a + i), lanes::load_bits<F32s>(b + i), sum);
  }
  return lanes::fold<lanes::Sum>(sum);
}

ROTA_LANES void add_scaled(float* sum, const float* row, float factor, std::uint64_t dim) noexcept {
  const F32s factors = lanes::all(factor);
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

// Of numbers up to 0. The polynomial errs by 2e-7 of what it is.
ROTA_LANES_INLINE F32s exp2_of(F32s x) noexcept {
  const F32s rest = lanes::above_floor(x);
  F32s power = multiply_add(lanes::all(1.8775767e-3F), rest, lanes::all(8.9893397e-3F));
  power = multiply_add(power, rest, lanes::all(5.5826318e-2F));
  power = multiply_add(power, rest, lanes::all(2.4015361e-1F));
  power = multiply_add(power, rest, lanes::all(6.9315308e-1F));
  power = multiply_add(power, rest, lanes::all(9.9999994e-1F));
  return lanes::times_power_of_floor(power, x);
}

ROTA_LANES void exponentiate(float* logits, std::uint64_t count, float top, float* sums) noexcept {
  F32s sum = lanes::load_bits<F32s>(sums);
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const F32s power = exp2_of(lanes::load_bits<F32s>(logits + i) - top);
    lanes::store_bits(power, logits + i);
    sum += power;
  }
  lanes::store_bits(sum, sums);
}

ROTA_LANES void largest_of_four(const float* const (&rows)[4], std::uint64_t count, float (&tops)[4]) noexcept {
  F32s most[4] = {lanes::all(tops[0]), lanes::all(tops[1]), lanes::all(tops[2]), lanes::all(tops[3])};
  for (std::uint64_t i = 0; i < count; i += kLanes) {
#pragma GCC unroll 4
    for (std::uint64_t j = 0; j < 4; ++j) {
      most[j] = lanes::Largest::of(lanes::load_bits<F32s>(rows[j] + i), most[j]);
    }
  }
  lanes::store_bits(lanes::fold_four<lanes::Largest>(most[0], most[1], most[2], most[3]), tops);
}

ROTA_LANES float sum_of(const float* row) noexcept {
  F32s sum = lanes::load_bits<F32s>(row);
  for (std::uint64_t i = kLanes; i < kRowStep; i += kLanes) sum += lanes::load_bits<F32s>(row + i);
  return lanes::fold<lanes::Sum>(sum);
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

inline constexpr AttendLanes kAttendLanes{dot,         add_scaled,   scale,           hadamard,
                                          sum_of,      exponentiate, largest_of_four, largest_magnitude,
                                          kDenseLanes, kTileLanes};

}  // namespace rota::ops::ROTA_ISA
