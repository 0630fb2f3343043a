// Part of attend_simd.h. Rows of f32, padded to whole kPadFloats with zeros.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "ops/attend/attend_kernels.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;
using simd::F32s;
using simd::I32s;
using simd::kLanes;
using simd::multiply_add;
using simd::U32s;

constexpr std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

// Into the second cache.
ROTA_SIMD_INLINE void prefetch(std::uintptr_t at) noexcept {
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);  // NOLINT(performance-no-int-to-ptr): no one reads it
}
ROTA_SIMD_INLINE void prefetch(const std::byte* at) noexcept { prefetch(reinterpret_cast<std::uintptr_t>(at)); }

ROTA_SIMD float dot(const float* a, const float* b, std::uint64_t dim) noexcept {
  F32s sum = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    sum = multiply_add(simd::load_bits<F32s>(a + i), simd::load_bits<F32s>(b + i), sum);
  }
  return simd::fold<simd::Sum>(sum);
}

ROTA_SIMD void add_scaled(float* sum, const float* row, float row_scale, std::uint64_t dim) noexcept {
  const F32s scales = simd::all(row_scale);
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    simd::store_bits(multiply_add(simd::load_bits<F32s>(row + i), scales, simd::load_bits<F32s>(sum + i)), sum + i);
  }
}

ROTA_SIMD void scale(float* row, float row_scale, std::uint64_t dim) noexcept {
  for (std::uint64_t i = 0; i < dim; i += kLanes) simd::store_bits(simd::load_bits<F32s>(row + i) * row_scale, row + i);
}

// `x` <= 0; relative error <= 2e-7.
ROTA_SIMD_INLINE F32s exp2_of(F32s x) noexcept {
  const F32s rest = simd::above_floor(x);
  F32s power = multiply_add(simd::all(1.8775767e-3F), rest, simd::all(8.9893397e-3F));
  power = multiply_add(power, rest, simd::all(5.5826318e-2F));
  power = multiply_add(power, rest, simd::all(2.4015361e-1F));
  power = multiply_add(power, rest, simd::all(6.9315308e-1F));
  power = multiply_add(power, rest, simd::all(9.9999994e-1F));
  return simd::times_power_of_floor(power, x);
}

ROTA_SIMD void exponentiate(float* logits, std::uint64_t count, float max_logit, float* exp_sum) noexcept {
  F32s sum = simd::load_bits<F32s>(exp_sum);
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const F32s power = exp2_of(simd::load_bits<F32s>(logits + i) - max_logit);
    simd::store_bits(power, logits + i);
    sum += power;
  }
  simd::store_bits(sum, exp_sum);
}

ROTA_SIMD void max_of_four(const float* const (&rows)[4], std::uint64_t count, float (&max_logits)[4]) noexcept {
  F32s most[4] = {simd::all(max_logits[0]), simd::all(max_logits[1]), simd::all(max_logits[2]),
                  simd::all(max_logits[3])};
  for (std::uint64_t i = 0; i < count; i += kLanes) {
#pragma GCC unroll 4
    for (std::uint64_t j = 0; j < 4; ++j) {
      most[j] = simd::Largest::of(simd::load_bits<F32s>(rows[j] + i), most[j]);
    }
  }
  simd::store_bits(simd::fold_four<simd::Largest>(most[0], most[1], most[2], most[3]), max_logits);
}

ROTA_SIMD float sum_of(const float* row) noexcept {
  F32s sum = simd::load_bits<F32s>(row);
  for (std::uint64_t i = kLanes; i < kPadFloats; i += kLanes) sum += simd::load_bits<F32s>(row + i);
  return simd::fold<simd::Sum>(sum);
}

ROTA_SIMD float largest_magnitude(const float* numbers, std::uint64_t count) noexcept {
  U32s most = {};
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const U32s bits = simd::load_bits<U32s>(numbers + i) & 0x7fffffffU;  // in the order of magnitudes, NaN last
    most = bits > most ? bits : most;
  }
  std::uint32_t largest = 0;
  for (std::uint64_t i = 0; i < kLanes; ++i) largest = most[i] > largest ? most[i] : largest;
  return simd::same_bits<float>(largest);
}

}  // namespace rota::ops::ROTA_ISA
