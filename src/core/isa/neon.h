// AArch64: NEON, which every such CPU has, the product of bytes where ROTA_ISA_DOTPROD says so, and that of matrices of
// bytes where ROTA_ISA_I8MM does.

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

// Numbers above 0, and NaN, are 0.
ROTA_SIMD_INLINE F32s up_to_zero(F32s numbers) noexcept {
  return same_bits<F32s>(vminnmq_f32(same_bits<float32x4_t>(numbers), vdupq_n_f32(0)));
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

// 16, 32 or 64 bytes, one for each code; 0 for codes beyond them.
template <std::uint32_t kSize>
struct Table;
template <>
struct Table<16> {
  Table16 bytes;
  ROTA_SIMD_INLINE explicit Table(const std::uint8_t* at) noexcept : bytes(load_table(at)) {}
  ROTA_SIMD_INLINE U8s look_up(U8s codes) const noexcept { return look_up_16(bytes, codes); }
};
template <>
struct Table<32> {
  uint8x16x2_t bytes;
  ROTA_SIMD_INLINE explicit Table(const std::uint8_t* at) noexcept : bytes(vld1q_u8_x2(at)) {}
  ROTA_SIMD_INLINE U8s look_up(U8s codes) const noexcept {
    return same_bits<U8s>(vqtbl2q_u8(bytes, same_bits<uint8x16_t>(codes)));
  }
};
template <>
struct Table<64> {
  uint8x16x4_t bytes;
  ROTA_SIMD_INLINE explicit Table(const std::uint8_t* at) noexcept : bytes(vld1q_u8_x4(at)) {}
  ROTA_SIMD_INLINE U8s look_up(U8s codes) const noexcept {
    return same_bits<U8s>(vqtbl4q_u8(bytes, same_bits<uint8x16_t>(codes)));
  }
};

// `lower` where the mask has ones, else `upper`.
ROTA_SIMD_INLINE U8s choose_bits(std::uint8_t mask, U8s lower, U8s upper) noexcept {
  return same_bits<U8s>(vbslq_u8(vdupq_n_u8(mask), same_bits<uint8x16_t>(lower), same_bits<uint8x16_t>(upper)));
}

#if defined(ROTA_ISA_DOTPROD)
// Of each number the lowest byte.
ROTA_SIMD_INLINE U8s as_bytes(const U32s (&numbers)[4]) noexcept {
  const uint16x8_t low = vuzp1q_u16(same_bits<uint16x8_t>(numbers[0]), same_bits<uint16x8_t>(numbers[1]));
  const uint16x8_t high = vuzp1q_u16(same_bits<uint16x8_t>(numbers[2]), same_bits<uint16x8_t>(numbers[3]));
  return same_bits<U8s>(vuzp1q_u8(same_bits<uint8x16_t>(low), same_bits<uint8x16_t>(high)));
}

ROTA_SIMD_INLINE void add_bytes(U32s& sums, U8s bytes) noexcept {
  sums = same_bits<U32s>(vdotq_u32(same_bits<uint32x4_t>(sums), same_bits<uint8x16_t>(bytes), vdupq_n_u8(1)));
}
ROTA_SIMD_INLINE std::int32_t sum_of(U32s numbers) noexcept { return vaddvq_s32(same_bits<int32x4_t>(numbers)); }

ROTA_SIMD_INLINE I32s two_numbers(const std::int32_t* at) noexcept {
  std::int64_t both;
  std::memcpy(&both, at, sizeof(both));
  return same_bits<I32s>(vdupq_n_s64(both));
}

// Of `a`, then of `b`: quads by turns, lower halves to `a` and upper ones to `b`.
ROTA_SIMD_INLINE void interleave_quads(U8s& a, U8s& b) noexcept {
  const auto first = same_bits<uint32x4_t>(a), second = same_bits<uint32x4_t>(b);
  a = same_bits<U8s>(vzip1q_u32(first, second));
  b = same_bits<U8s>(vzip2q_u32(first, second));
}

// Sums of two vectors by turns, of two tokens and of the next two: to those of each vector.
ROTA_SIMD_INLINE void part_rows(I32s& a, I32s& b) noexcept {
  const auto first = same_bits<int32x4_t>(a), second = same_bits<int32x4_t>(b);
  a = same_bits<I32s>(vuzp1q_s32(first, second));
  b = same_bits<I32s>(vuzp2q_s32(first, second));
}

#if defined(ROTA_ISA_I8MM)
inline constexpr std::uint32_t kQuadsTogether = 2;
#else
inline constexpr std::uint32_t kQuadsTogether = 1;
#endif

// Of levels that are kMore larger than they are, so that instructions take them: of keys with bytes that have a sign,
// and of values with bytes that have none. dot() adds to each sum four products with one quad of the right operand.
struct KeyProducts {
#if defined(ROTA_ISA_I8MM)
  static constexpr std::uint8_t kMore = 128;
  template <int kQuad>
  ROTA_SIMD_INLINE static I32s dot(I32s sum, U8s levels, U8s bytes) noexcept {
    return same_bits<I32s>(vusdotq_laneq_s32(same_bits<int32x4_t>(sum), same_bits<uint8x16_t>(levels),
                                             same_bits<int8x16_t>(bytes), kQuad));
  }
  // Adds the products of two rows of two quads each with two others.
  ROTA_SIMD_INLINE static void multiply_rows(I32s& sum, U8s levels, U8s rows) noexcept {
    sum = same_bits<I32s>(
        vusmmlaq_s32(same_bits<int32x4_t>(sum), same_bits<uint8x16_t>(levels), same_bits<int8x16_t>(rows)));
  }
#else
  static constexpr std::uint8_t kMore = 0;
  template <int kQuad>
  ROTA_SIMD_INLINE static I32s dot(I32s sum, U8s levels, U8s bytes) noexcept {
    return same_bits<I32s>(
        vdotq_laneq_s32(same_bits<int32x4_t>(sum), same_bits<int8x16_t>(levels), same_bits<int8x16_t>(bytes), kQuad));
  }
#endif
};

struct ValueProducts {
  static constexpr std::uint8_t kMore = 128;
  template <int kQuad>
  ROTA_SIMD_INLINE static I32s dot(I32s sum, U8s levels, U8s bytes) noexcept {
    return same_bits<I32s>(vdotq_laneq_u32(same_bits<uint32x4_t>(sum), same_bits<uint8x16_t>(levels),
                                           same_bits<uint8x16_t>(bytes), kQuad));
  }
#if defined(ROTA_ISA_I8MM)
  ROTA_SIMD_INLINE static void multiply_rows(I32s& sum, U8s levels, U8s rows) noexcept {
    sum = same_bits<I32s>(
        vmmlaq_u32(same_bits<uint32x4_t>(sum), same_bits<uint8x16_t>(levels), same_bits<uint8x16_t>(rows)));
  }
#endif
};

template <class Products>
ROTA_SIMD_INLINE void dot_quad(I32s& sum, U8s levels, U8s bytes, std::uint32_t quad) noexcept {
  switch (quad) {
    case 0: sum = Products::template dot<0>(sum, levels, bytes); break;
    case 1: sum = Products::template dot<1>(sum, levels, bytes); break;
    case 2: sum = Products::template dot<2>(sum, levels, bytes); break;
    default: sum = Products::template dot<3>(sum, levels, bytes); break;
  }
}
#else
ROTA_SIMD_INLINE I32s pair_products(I16s a, I16s b) noexcept {
  const auto left = same_bits<int16x8_t>(a), right = same_bits<int16x8_t>(b);
  const int32x4_t low = vmull_s16(vget_low_s16(left), vget_low_s16(right));
  return same_bits<I32s>(vpaddq_s32(low, vmull_high_s16(left, right)));
}
#endif

}  // namespace rota::core::ROTA_ISA
