// Dense elements, as many at a time as a register holds f32, with the bits of rota/dtype.h whatever the instruction
// set. Included through core/for_each_isa.h, once per set: so it has no guard, and rota/dtype.h comes before it.

namespace rota::codec::ROTA_ISA {

inline constexpr std::uint64_t kLanes = ROTA_ISA_LANES;

using F32s [[gnu::vector_size(ROTA_ISA_LANES * 4)]] = float;
using U32s [[gnu::vector_size(ROTA_ISA_LANES * 4)]] = std::uint32_t;
using I32s [[gnu::vector_size(ROTA_ISA_LANES * 4)]] = std::int32_t;
using U16s [[gnu::vector_size(ROTA_ISA_LANES * 2)]] = std::uint16_t;

// Of so many elements, how many one step takes.
ROTA_LANES_INLINE std::uint64_t lanes_of(std::uint64_t left) noexcept { return left < kLanes ? left : kLanes; }

template <class To, class From>
ROTA_LANES_INLINE To same_bits(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class Vector>
ROTA_LANES_INLINE Vector load_bits(const void* at) noexcept {
  Vector bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

template <class Vector>
ROTA_LANES_INLINE bool is_zero(const Vector& vector) noexcept {
  std::uint64_t parts[sizeof(vector) / sizeof(std::uint64_t)];
  std::memcpy(parts, &vector, sizeof(vector));
  std::uint64_t any = 0;
  for (const std::uint64_t part : parts) any |= part;
  return any == 0;
}

// Masked forms with all lanes on: g++ 12 warns about its own unmasked ones.
ROTA_LANES_INLINE F32s f32s_from_f16(U16s half) noexcept {
#if ROTA_ISA_LANES == 16
  return same_bits<F32s>(_mm512_maskz_cvtph_ps(0xffff, same_bits<__m256i>(half)));
#elif ROTA_ISA_LANES == 8
  return same_bits<F32s>(_mm256_cvtph_ps(same_bits<__m128i>(half)));
#elif defined(__aarch64__)
  return same_bits<F32s>(vcvt_f32_f16(same_bits<float16x4_t>(half)));
#else
  F32s wide = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) wide[i] = f32_from_f16(half[i]);
  return wide;
#endif
}

ROTA_LANES_INLINE U16s f16_from_f32s(F32s wide) noexcept {
#if ROTA_ISA_LANES == 16
  return same_bits<U16s>(
      _mm512_maskz_cvtps_ph(0xffff, same_bits<__m512>(wide), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif ROTA_ISA_LANES == 8
  return same_bits<U16s>(_mm256_cvtps_ph(same_bits<__m256>(wide), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__aarch64__)
  return same_bits<U16s>(vcvt_f16_f32(same_bits<float32x4_t>(wide)));
#else
  U16s half = {};
  for (std::uint64_t i = 0; i < kLanes; ++i) half[i] = f16_from_f32(wide[i]);
  return half;
#endif
}

ROTA_LANES_INLINE U16s bf16_from_f32s(F32s wide) noexcept {
  const U32s bits = same_bits<U32s>(wide);
  const U32s top = bits >> 16;
  const U32s rounded = (bits + 0x7fffU + (top & 1U)) >> 16;
  const U32s chosen = (bits & 0x7fffffffU) > 0x7f800000U ? (top | 0x40U) : rounded;
  return __builtin_convertvector(chosen, U16s);
}

// kLanes elements side by side.
template <DType T>
ROTA_LANES_INLINE F32s load(const std::byte* at) noexcept {
  if constexpr (T == DType::f32) {
    return load_bits<F32s>(at);
  } else if constexpr (T == DType::f16) {
    return f32s_from_f16(load_bits<U16s>(at));
  } else {
    return same_bits<F32s>(__builtin_convertvector(load_bits<U16s>(at), U32s) << 16);
  }
}

template <DType T>
ROTA_LANES_INLINE void store(F32s wide, std::byte* at) noexcept {
  if constexpr (T == DType::f32) {
    std::memcpy(at, &wide, sizeof(wide));
  } else {
    const U16s half = T == DType::f16 ? f16_from_f32s(wide) : bf16_from_f32s(wide);
    std::memcpy(at, &half, sizeof(half));
  }
}

// Fewer elements than lanes, or elements apart from each other. Lanes without an element are zero.
struct Spread {
  std::uint64_t count;
  std::uint64_t stride_bytes;
};

template <std::uint64_t kBytes>
ROTA_LANES_INLINE void gather(const std::byte* at, Spread spread, std::byte* elements) noexcept {
  std::memset(elements, 0, kLanes * kBytes);
  for (std::uint64_t i = 0; i < spread.count; ++i) {
    std::memcpy(elements + i * kBytes, at + i * spread.stride_bytes, kBytes);
  }
}

template <DType T>
ROTA_LANES_INLINE F32s load(const std::byte* at, Spread spread) noexcept {
  std::byte elements[kLanes * info(T).bytes];
  gather<info(T).bytes>(at, spread, elements);
  return load<T>(elements);
}

template <class Vector>
ROTA_LANES_INLINE Vector load_bits(const std::byte* at, Spread spread) noexcept {
  std::byte elements[sizeof(Vector)];
  gather<sizeof(Vector) / kLanes>(at, spread, elements);
  return load_bits<Vector>(elements);
}

template <DType T>
ROTA_LANES_INLINE void store(F32s wide, std::byte* at, Spread spread) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  std::byte elements[kLanes * kBytes];
  store<T>(wide, elements);
  for (std::uint64_t i = 0; i < spread.count; ++i) {
    std::memcpy(at + i * spread.stride_bytes, elements + i * kBytes, kBytes);
  }
}

}  // namespace rota::codec::ROTA_ISA
