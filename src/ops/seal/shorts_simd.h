// Part of seal_simd.h. Shorts and bytes, a register at a time: what the compilers' vector types do slowly or not at
// all.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "codec/turbo/rotation_simd.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;
using simd::F32s;
using simd::I32s;
using simd::kLanes;
using simd::U16s;
using simd::U32s;
using simd::U8s;
using F64s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = double;
using I64s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int64_t;
using HalfF32s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = float;
using HalfI32s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = std::int32_t;
using I16s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int16_t;

inline constexpr std::uint64_t kShortLanes = 2 * kLanes;
inline constexpr std::uint64_t kByteLanes = 2 * kShortLanes;

template <class Vector>
ROTA_SIMD_INLINE Vector load(const void* at) noexcept {
  return simd::load_bits<Vector>(at);
}

template <class Vector>
ROTA_SIMD_INLINE void store(const Vector& vector, void* at) noexcept {
  std::memcpy(at, &vector, sizeof(vector));
}

// Two registers of shorts as one of bytes, at least 0 and at most 255, in an order that unpacked() undoes.
ROTA_SIMD_INLINE U8s packed(I16s first, I16s second) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<U8s>(_mm512_packus_epi16(simd::same_bits<__m512i>(first), simd::same_bits<__m512i>(second)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<U8s>(_mm256_packus_epi16(simd::same_bits<__m256i>(first), simd::same_bits<__m256i>(second)));
#elif defined(__SSE2__)
  return simd::same_bits<U8s>(_mm_packus_epi16(simd::same_bits<__m128i>(first), simd::same_bits<__m128i>(second)));
#elif defined(__aarch64__)
  return simd::same_bits<U8s>(
      vqmovun_high_s16(vqmovun_s16(simd::same_bits<int16x8_t>(first)), simd::same_bits<int16x8_t>(second)));
#else
  U8s bytes;
  for (std::uint64_t i = 0; i < kShortLanes; ++i) {
    bytes[i] = static_cast<std::uint8_t>(std::clamp<std::int16_t>(first[i], 0, 255));
    bytes[kShortLanes + i] = static_cast<std::uint8_t>(std::clamp<std::int16_t>(second[i], 0, 255));
  }
  return bytes;
#endif
}

struct ShortPair {
  I16s first, second;
};

ROTA_SIMD_INLINE ShortPair unpacked(U8s bytes) noexcept {
#if ROTA_ISA_WIDTH == 16
  const auto all = simd::same_bits<__m512i>(bytes);
  return {simd::same_bits<I16s>(_mm512_unpacklo_epi8(all, __m512i{})),
          simd::same_bits<I16s>(_mm512_unpackhi_epi8(all, __m512i{}))};
#elif ROTA_ISA_WIDTH == 8
  const auto all = simd::same_bits<__m256i>(bytes);
  return {simd::same_bits<I16s>(_mm256_unpacklo_epi8(all, __m256i{})),
          simd::same_bits<I16s>(_mm256_unpackhi_epi8(all, __m256i{}))};
#elif defined(__SSE2__)
  const auto all = simd::same_bits<__m128i>(bytes);
  return {simd::same_bits<I16s>(_mm_unpacklo_epi8(all, __m128i{})),
          simd::same_bits<I16s>(_mm_unpackhi_epi8(all, __m128i{}))};
#elif defined(__aarch64__)
  const auto all = simd::same_bits<uint8x16_t>(bytes);
  return {simd::same_bits<I16s>(vmovl_u8(vget_low_u8(all))), simd::same_bits<I16s>(vmovl_high_u8(all))};
#else
  ShortPair pair;
  for (std::uint64_t i = 0; i < kShortLanes; ++i) {
    pair.first[i] = bytes[i];
    pair.second[i] = bytes[kShortLanes + i];
  }
  return pair;
#endif
}

// Packed bytes, in the order of the shorts.
ROTA_SIMD_INLINE void store_packed(U8s bytes, void* at) noexcept {
#if ROTA_ISA_WIDTH == 16
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  store(_mm512_maskz_permutexvar_epi64(0xff, order, simd::same_bits<__m512i>(bytes)), at);
#elif ROTA_ISA_WIDTH == 8
  store(_mm256_permute4x64_epi64(simd::same_bits<__m256i>(bytes), 0xd8), at);
#else
  store(bytes, at);
#endif
}

// Numbers below 2^15 in magnitude, as shorts in the same order.
ROTA_SIMD_INLINE I16s shorts_from(I32s first, I32s second) noexcept {
#if ROTA_ISA_WIDTH == 16
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512i apart = _mm512_packs_epi32(simd::same_bits<__m512i>(first), simd::same_bits<__m512i>(second));
  return simd::same_bits<I16s>(_mm512_maskz_permutexvar_epi64(0xff, order, apart));
#elif ROTA_ISA_WIDTH == 8
  const __m256i apart = _mm256_packs_epi32(simd::same_bits<__m256i>(first), simd::same_bits<__m256i>(second));
  return simd::same_bits<I16s>(_mm256_permute4x64_epi64(apart, 0xd8));
#elif defined(__SSE2__)
  return simd::same_bits<I16s>(_mm_packs_epi32(simd::same_bits<__m128i>(first), simd::same_bits<__m128i>(second)));
#elif defined(__aarch64__)
  return simd::same_bits<I16s>(
      vmovn_high_s32(vmovn_s32(simd::same_bits<int32x4_t>(first)), simd::same_bits<int32x4_t>(second)));
#else
  I16s shorts;
  for (std::uint64_t i = 0; i < kLanes; ++i) {
    shorts[i] = static_cast<std::int16_t>(first[i]);
    shorts[kLanes + i] = static_cast<std::int16_t>(second[i]);
  }
  return shorts;
#endif
}

// magnitude * factor >> 16, of unsigned numbers.
ROTA_SIMD_INLINE I16s multiply_high(I16s magnitude, std::uint16_t factor) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<I16s>(_mm512_mulhi_epu16(
      simd::same_bits<__m512i>(magnitude), simd::same_bits<__m512i>(I16s{} + static_cast<std::int16_t>(factor))));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<I16s>(_mm256_mulhi_epu16(
      simd::same_bits<__m256i>(magnitude), simd::same_bits<__m256i>(I16s{} + static_cast<std::int16_t>(factor))));
#elif defined(__SSE2__)
  return simd::same_bits<I16s>(_mm_mulhi_epu16(simd::same_bits<__m128i>(magnitude),
                                               simd::same_bits<__m128i>(I16s{} + static_cast<std::int16_t>(factor))));
#else
  I16s product;
  for (std::uint64_t i = 0; i < kShortLanes; ++i) {
    product[i] = static_cast<std::int16_t>((static_cast<std::uint32_t>(magnitude[i]) * factor) >> 16);
  }
  return product;
#endif
}

// Sums of the products of neighbours.
ROTA_SIMD_INLINE U32s multiply_pairs(I16s a, I16s b) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<U32s>(_mm512_madd_epi16(simd::same_bits<__m512i>(a), simd::same_bits<__m512i>(b)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<U32s>(_mm256_madd_epi16(simd::same_bits<__m256i>(a), simd::same_bits<__m256i>(b)));
#elif defined(__SSE2__)
  return simd::same_bits<U32s>(_mm_madd_epi16(simd::same_bits<__m128i>(a), simd::same_bits<__m128i>(b)));
#else
  U32s sums;
  for (std::uint64_t i = 0; i < kLanes; ++i) {
    sums[i] = static_cast<std::uint32_t>(a[2 * i] * b[2 * i]) + static_cast<std::uint32_t>(a[2 * i + 1] * b[2 * i + 1]);
  }
  return sums;
#endif
}

ROTA_SIMD_INLINE F64s f64s_from(HalfF32s values) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<F64s>(_mm512_maskz_cvtps_pd(0xff, simd::same_bits<__m256>(values)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<F64s>(_mm256_cvtps_pd(simd::same_bits<__m128>(values)));
#else
  return __builtin_convertvector(values, F64s);
#endif
}

ROTA_SIMD_INLINE HalfI32s truncated(F64s values) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<HalfI32s>(_mm512_maskz_cvttpd_epi32(0xff, simd::same_bits<__m512d>(values)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<HalfI32s>(_mm256_cvttpd_epi32(simd::same_bits<__m256d>(values)));
#else
  return __builtin_convertvector(values, HalfI32s);
#endif
}

struct Or {
  ROTA_SIMD_INLINE static U32s of(U32s a, U32s b) noexcept { return a | b; }
};
struct Larger {
  ROTA_SIMD_INLINE static I32s of(I32s a, I32s b) noexcept { return a > b ? a : b; }
};

// All numbers of a vector, combined into one.
template <class Combined, class Vector>
ROTA_SIMD_INLINE auto combined(Vector v) noexcept {
  if constexpr (kLanes >= 16) v = Combined::of(v, simd::swap_neighbours<8 % kLanes>(v));
  if constexpr (kLanes >= 8) v = Combined::of(v, simd::swap_neighbours<4 % kLanes>(v));
  v = Combined::of(v, simd::swap_neighbours<2>(v));
  v = Combined::of(v, simd::swap_neighbours<1>(v));
  return v[0];
}

}  // namespace rota::ops::ROTA_ISA
