// The turbo codec's rotation, a register at a time. Included through core/for_each_isa.h, after codec/dense/simd.h.

#if !defined(ROTA_ISA)
#include "codec/dense/simd.h"
#endif

namespace rota::codec::ROTA_ISA {

template <std::uint64_t kStep, class Vector>
ROTA_SIMD_INLINE Vector swap_neighbours(Vector v) noexcept {
#if ROTA_ISA_WIDTH == 16
  return __builtin_shufflevector(v, v, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep, 4 ^ kStep, 5 ^ kStep, 6 ^ kStep,
                                 7 ^ kStep, 8 ^ kStep, 9 ^ kStep, 10 ^ kStep, 11 ^ kStep, 12 ^ kStep, 13 ^ kStep,
                                 14 ^ kStep, 15 ^ kStep);
#elif ROTA_ISA_WIDTH == 8
  return __builtin_shufflevector(v, v, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep, 4 ^ kStep, 5 ^ kStep, 6 ^ kStep,
                                 7 ^ kStep);
#else
  return __builtin_shufflevector(v, v, 0 ^ kStep, 1 ^ kStep, 2 ^ kStep, 3 ^ kStep);
#endif
}

// Sums in lanes where the bit kStep of the index is clear, differences where it is set.
template <std::uint64_t kStep, class Vector>
ROTA_SIMD_INLINE Vector mix_neighbours(Vector v) noexcept {
  I32s second;
  for (std::uint64_t i = 0; i < kLanes; ++i) second[i] = (i & kStep) != 0 ? -1 : 0;
  const Vector other = swap_neighbours<kStep>(v);
  return second ? other - v : other + v;
}

template <class Vector>
ROTA_SIMD_INLINE Vector mix_within(Vector v) noexcept {
  v = mix_neighbours<1>(v);
  v = mix_neighbours<2>(v);
  if constexpr (kLanes >= 8) v = mix_neighbours<4>(v);
  if constexpr (kLanes >= 16) v = mix_neighbours<8>(v);
  return v;
}

// Four vectors that are `step` apart, two stages at once.
template <class Vector>
ROTA_SIMD_INLINE void mix_four(Vector* at, std::uint64_t step) noexcept {
  const Vector sum = at[0] + at[step];
  const Vector difference = at[0] - at[step];
  const Vector other_sum = at[2 * step] + at[3 * step];
  const Vector other_difference = at[2 * step] - at[3 * step];
  at[0] = sum + other_sum;
  at[step] = difference + other_difference;
  at[2 * step] = sum - other_sum;
  at[3 * step] = difference - other_difference;
}

// Hadamard without its factor, in place, of each `size` values that follow each other: 1, or a power of two from 16 on.
template <class Vector>
ROTA_SIMD_INLINE void hadamard(Vector* values, std::uint64_t dim, std::uint64_t size) noexcept {
  if (size == 1) return;
  const std::uint64_t vectors = size / kLanes;
  for (Vector* block = values; block != values + dim / kLanes; block += vectors) {
    for (std::uint64_t i = 0; i < vectors; ++i) block[i] = mix_within(block[i]);
    std::uint64_t step = 1;
    for (; 4 * step <= vectors; step *= 4) {
      for (std::uint64_t first = 0; first < vectors; first += 4 * step) {
        for (std::uint64_t i = first; i < first + step; ++i) mix_four(block + i, step);
      }
    }
    if (step == vectors) continue;
    for (std::uint64_t i = 0; i < step; ++i) {
      const Vector difference = block[i] - block[i + step];
      block[i] += block[i + step];
      block[i + step] = difference;
    }
  }
}

// to[a] = sum over b of row[a * b mod m] * from[b], rounded, in units of 2^-shift; each of `size` values.
struct HartleyShape {
  const std::int32_t* row;
  std::uint64_t m, size;
  int shift;
};

ROTA_SIMD_INLINE void hartley(const I32s* from, I32s* to, const HartleyShape& shape) noexcept {
  const std::uint64_t vectors = shape.size / kLanes;
  for (std::uint64_t a = 0; a < shape.m; ++a) {
    for (std::uint64_t i = 0; i < vectors; ++i) {
      I32s sum = I32s{} + (1 << (shape.shift - 1));
      std::uint64_t turn = 0;
      for (std::uint64_t b = 0; b < shape.m; ++b) {
        sum += from[b * vectors + i] * shape.row[turn];
        turn += a;
        if (turn >= shape.m) turn -= shape.m;
      }
      to[a * vectors + i] = sum >> shape.shift;
    }
  }
}

}  // namespace rota::codec::ROTA_ISA
