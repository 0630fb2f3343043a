// AVX-512 F, BW and DQ, VNNI where ROTA_ISA_VNNI says so, and VBMI where ROTA_ISA_VBMI does. Masked forms with all
// lanes on: g++ 12 warns about its own unmasked ones.

namespace rota::core::ROTA_ISA {

ROTA_SIMD_INLINE F32s f32s_from_f16(U16s half) noexcept {
  return same_bits<F32s>(_mm512_maskz_cvtph_ps(0xffff, same_bits<__m256i>(half)));
}

ROTA_SIMD_INLINE U16s f16_from_f32s(F32s wide) noexcept {
  return same_bits<U16s>(
      _mm512_maskz_cvtps_ph(0xffff, same_bits<__m512>(wide), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

ROTA_SIMD_INLINE F32s multiply_add(F32s a, F32s b, F32s sum) noexcept {
  return same_bits<F32s>(_mm512_fmadd_ps(same_bits<__m512>(a), same_bits<__m512>(b), same_bits<__m512>(sum)));
}

ROTA_SIMD_INLINE Bytes low_bytes(U32s numbers) noexcept {
  return same_bits<Bytes>(_mm512_maskz_cvtepi32_epi8(0xffff, same_bits<__m512i>(numbers)));
}

ROTA_SIMD_INLINE void store_as_bytes(const U32s (&numbers)[4], void* at) noexcept {
  const __m512i pairs = _mm512_packus_epi32(same_bits<__m512i>(numbers[0]), same_bits<__m512i>(numbers[1]));
  const __m512i more_pairs = _mm512_packus_epi32(same_bits<__m512i>(numbers[2]), same_bits<__m512i>(numbers[3]));
  const __m512i quads_apart = _mm512_packus_epi16(pairs, more_pairs);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  store_bits(_mm512_maskz_permutexvar_epi32(0xffff, order, quads_apart), at);
}

ROTA_SIMD_INLINE F32s above_floor(F32s numbers) noexcept {
  return same_bits<F32s>(_mm512_maskz_reduce_ps(0xffff, same_bits<__m512>(numbers), _MM_FROUND_TO_NEG_INF | 8));
}

ROTA_SIMD_INLINE F32s times_power_of_floor(F32s factors, F32s exponents) noexcept {
  return same_bits<F32s>(_mm512_maskz_scalef_ps(0xffff, same_bits<__m512>(factors), same_bits<__m512>(exponents)));
}

using Table16 = __m512i;
ROTA_SIMD_INLINE Table16 load_table(const std::uint8_t* table) noexcept {
  return _mm512_maskz_broadcast_i32x4(0xffff, _mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}
ROTA_SIMD_INLINE U8s look_up_16(Table16 table, U8s codes) noexcept {
  return same_bits<U8s>(_mm512_shuffle_epi8(table, same_bits<__m512i>(codes)));
}

#if defined(ROTA_ISA_VBMI)
using Table64 = __m512i;
ROTA_SIMD_INLINE Table64 load_table_64(const std::uint8_t* table) noexcept { return _mm512_load_si512(table); }
// By the lower six bits of each byte.
ROTA_SIMD_INLINE U8s look_up_64(Table64 table, U8s codes) noexcept {
  return same_bits<U8s>(_mm512_maskz_permutexvar_epi8(~__mmask64{0}, same_bits<__m512i>(codes), table));
}

// `lower` where the mask has ones, else `upper`.
ROTA_SIMD_INLINE U8s choose_bits(std::uint8_t mask, U8s lower, U8s upper) noexcept {
  const U8s masks = U8s{} + mask;
  return same_bits<U8s>(
      _mm512_ternarylogic_epi32(same_bits<__m512i>(masks), same_bits<__m512i>(lower), same_bits<__m512i>(upper), 0xca));
}
#endif

#if defined(ROTA_ISA_VNNI)
using Unsigned = U8s;
using Signed = U8s;
ROTA_SIMD_INLINE Unsigned as_unsigned(U8s bytes) noexcept { return bytes; }
ROTA_SIMD_INLINE Signed as_signed(U8s bytes) noexcept { return bytes; }

// By hand: g++ 12 copies accumulators around its intrinsic.
ROTA_SIMD_INLINE void dot4(I32s& sum, Unsigned a, Signed b) noexcept {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
#else
ROTA_SIMD_INLINE void dot4_small(I32s& sum, U8s a, U8s b) noexcept {
  const __m512i pairs = _mm512_maddubs_epi16(same_bits<__m512i>(a), same_bits<__m512i>(b));
  sum += same_bits<I32s>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

ROTA_SIMD_INLINE I32s pair_products(I16s a, I16s b) noexcept {
  return same_bits<I32s>(_mm512_madd_epi16(same_bits<__m512i>(a), same_bits<__m512i>(b)));
}
#endif

}  // namespace rota::core::ROTA_ISA
