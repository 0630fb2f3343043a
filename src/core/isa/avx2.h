// AVX2 with FMA and F16C: Haswell, Zen and later; and VNNI where ROTA_ISA_VNNI says so: Alder Lake and later.

namespace rota::core::ROTA_ISA {

ROTA_SIMD_INLINE F32s f32s_from_f16(U16s half) noexcept {
  return same_bits<F32s>(_mm256_cvtph_ps(same_bits<__m128i>(half)));
}

ROTA_SIMD_INLINE U16s f16_from_f32s(F32s wide) noexcept {
  return same_bits<U16s>(_mm256_cvtps_ph(same_bits<__m256>(wide), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

ROTA_SIMD_INLINE F32s multiply_add(F32s a, F32s b, F32s sum) noexcept {
  return same_bits<F32s>(_mm256_fmadd_ps(same_bits<__m256>(a), same_bits<__m256>(b), same_bits<__m256>(sum)));
}

// Numbers above 0, and NaN, are 0.
ROTA_SIMD_INLINE F32s up_to_zero(F32s numbers) noexcept {
  return same_bits<F32s>(_mm256_min_ps(same_bits<__m256>(numbers), _mm256_setzero_ps()));
}

ROTA_SIMD_INLINE Bytes low_bytes(U32s numbers) noexcept {
  const auto bytes = same_bits<__m256i>(numbers & 255U);
  const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  return same_bits<Bytes>(_mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)));
}

using Table16 = __m256i;
ROTA_SIMD_INLINE Table16 load_table(const std::uint8_t* table) noexcept {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}
ROTA_SIMD_INLINE U8s look_up_16(Table16 table, U8s codes) noexcept {
  return same_bits<U8s>(_mm256_shuffle_epi8(table, same_bits<__m256i>(codes)));
}

#if defined(ROTA_ISA_VNNI)
using Unsigned = U8s;
using Signed = U8s;
ROTA_SIMD_INLINE Unsigned as_unsigned(U8s bytes) noexcept { return bytes; }
ROTA_SIMD_INLINE Signed as_signed(U8s bytes) noexcept { return bytes; }

// By hand, as for AVX-512; in the encoding of CPUs that have no AVX-512.
ROTA_SIMD_INLINE void dot4(I32s& sum, Unsigned a, Signed b) noexcept {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}
#else
ROTA_SIMD_INLINE void dot4_small(I32s& sum, U8s a, U8s b) noexcept {
  const __m256i pairs = _mm256_maddubs_epi16(same_bits<__m256i>(a), same_bits<__m256i>(b));
  sum += same_bits<I32s>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

ROTA_SIMD_INLINE I32s pair_products(I16s a, I16s b) noexcept {
  return same_bits<I32s>(_mm256_madd_epi16(same_bits<__m256i>(a), same_bits<__m256i>(b)));
}
#endif

}  // namespace rota::core::ROTA_ISA
