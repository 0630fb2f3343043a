// What the compiler may assume: on x86-64 that is SSE2.

namespace rota::core::ROTA_ISA {

ROTA_SIMD_INLINE F32s f32s_from_f16(U16s half) noexcept {
  F32s wide = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) wide[i] = f32_from_f16(half[i]);
  return wide;
}

ROTA_SIMD_INLINE U16s f16_from_f32s(F32s wide) noexcept {
  U16s half = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) half[i] = f16_from_f32(wide[i]);
  return half;
}

ROTA_SIMD_INLINE F32s multiply_add(F32s a, F32s b, F32s sum) noexcept { return sum + a * b; }

// Numbers above 0, and NaN, are 0.
ROTA_SIMD_INLINE F32s up_to_zero(F32s numbers) noexcept {
#if defined(__SSE2__)
  return same_bits<F32s>(_mm_min_ps(same_bits<__m128>(numbers), _mm_setzero_ps()));
#else
  return numbers < 0.0F ? numbers : F32s{};
#endif
}

ROTA_SIMD_INLINE Bytes low_bytes(U32s numbers) noexcept {
  Bytes bytes = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) bytes[i] = static_cast<std::uint8_t>(numbers[i]);
  return bytes;
}

// One of 16 bytes for each code. Not inlined: each look-up would have places on the stack of its own, 100 KiB in all.
using Table16 = const std::uint8_t*;
ROTA_SIMD_INLINE Table16 load_table(const std::uint8_t* table) noexcept { return table; }
[[gnu::noinline]] inline U8s look_up_16(Table16 table, U8s codes) noexcept {
  U8s found = {};
  for (std::uint64_t i = 0; i < sizeof(codes); ++i) found[i] = table[codes[i]];
  return found;
}

ROTA_SIMD_INLINE I32s pair_products(I16s a, I16s b) noexcept {
#if defined(__SSE2__)
  return same_bits<I32s>(_mm_madd_epi16(same_bits<__m128i>(a), same_bits<__m128i>(b)));
#else
  I32s sum = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) sum[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sum;
#endif
}

}  // namespace rota::core::ROTA_ISA
