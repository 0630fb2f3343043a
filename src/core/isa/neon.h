// AArch64: NEON, which every such CPU has, and the product of bytes where ROTA_ISA_DOTPROD says so.

namespace rota::core::ROTA_ISA {

ROTA_SIMD_INLINE F32s f32s_from_f16(U16s half) noexcept {
  return same_bits<F32s>(vcvt_f32_f16(same_bits<float16x4_t>(half)));
}

ROTA_SIMD_INLINE U16s f16_from_f32s(F32s wide) noexcept {
  return same_bits<U16s>(vcvt_f16_f32(same_bits<float32x4_t>(wide)));
}

ROTA_SIMD_INLINE F32s multiply_add(F32s a, F32s b, F32s sum) noexcept {
  return same_bits<F32s>(vfmaq_f32(same_bits<float32x4_t>(sum), same_bits<float32x4_t>(a), same_bits<float32x4_t>(b)));
}

ROTA_SIMD_INLINE Bytes low_bytes(U32s numbers) noexcept {
  const uint16x4_t halves = vmovn_u32(same_bits<uint32x4_t>(numbers));
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(halves, halves));
  return load_bits<Bytes>(&bytes);
}

using Table16 = uint8x16_t;
ROTA_SIMD_INLINE Table16 load_table(const std::uint8_t* table) noexcept { return vld1q_u8(table); }
ROTA_SIMD_INLINE U8s look_up_16(Table16 table, U8s codes) noexcept {
  return same_bits<U8s>(vqtbl1q_u8(table, same_bits<uint8x16_t>(codes)));
}

#if defined(ROTA_ISA_DOTPROD)
// The instruction takes two operands with a sign, or two without: so the unsigned one is 128 less than it is, and what
// that takes away is added again.
using Unsigned = int8x16_t;
struct Signed {
  int8x16_t bytes;
  int32x4_t sums;  // of four bytes each, times 128
};
ROTA_SIMD_INLINE Unsigned as_unsigned(U8s bytes) noexcept { return same_bits<int8x16_t>(bytes ^ 128); }
ROTA_SIMD_INLINE Signed as_signed(U8s bytes) noexcept {
  const auto with_sign = same_bits<int8x16_t>(bytes);
  return {with_sign, vshlq_n_s32(vdotq_s32(vdupq_n_s32(0), with_sign, vdupq_n_s8(1)), 7)};
}

ROTA_SIMD_INLINE void dot4(I32s& sum, Unsigned a, Signed b) noexcept {
  sum = same_bits<I32s>(vdotq_s32(vaddq_s32(same_bits<int32x4_t>(sum), b.sums), a, b.bytes));
}
#else
ROTA_SIMD_INLINE I32s pair_products(I16s a, I16s b) noexcept {
  const auto left = same_bits<int16x8_t>(a), right = same_bits<int16x8_t>(b);
  const int32x4_t low = vmull_s16(vget_low_s16(left), vget_low_s16(right));
  return same_bits<I32s>(vpaddq_s32(low, vmull_high_s16(left, right)));
}
#endif

}  // namespace rota::core::ROTA_ISA
