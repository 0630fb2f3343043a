// The vectors of one instruction set, and what every set can do with them. Included by core/for_each_isa.h, once per
// set, so it has no guard. What differs between sets is in core/isa/, one file for each.

#if !defined(ROTA_ISA)
#include "core/one_isa.h"
#endif

namespace rota::core::ROTA_ISA {

inline constexpr std::uint64_t kLanes = ROTA_ISA_WIDTH;
#if defined(__aarch64__)
inline constexpr std::uint32_t kVectorRegisters = 32;
#else
inline constexpr std::uint32_t kVectorRegisters = ROTA_ISA_WIDTH == 16 ? 32 : 16;
#endif

using F32s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = float;
using U32s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::uint32_t;
using I32s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int32_t;
using I16s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int16_t;
using U8s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::uint8_t;
using U16s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = std::uint16_t;  // as many as F32s
using Bytes [[gnu::vector_size(ROTA_ISA_WIDTH)]] = std::uint8_t;      // as many as F32s
using F32Quad [[gnu::vector_size(16)]] = float;

template <class To, class From>
ROTA_SIMD_INLINE To same_bits(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class Vector>
ROTA_SIMD_INLINE Vector load_bits(const void* at) noexcept {
  Vector bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

template <class Vector>
ROTA_SIMD_INLINE void store_bits(const Vector& vector, void* at) noexcept {
  std::memcpy(at, &vector, sizeof(vector));
}

// The same number in all lanes. Not 0 + number, which is another one for -0, so that a compiler adds.
ROTA_SIMD_INLINE F32s all(float number) noexcept { return number - F32s{}; }

template <class Vector>
ROTA_SIMD_INLINE bool is_zero(const Vector& vector) noexcept {
  std::uint64_t parts[sizeof(vector) / sizeof(std::uint64_t)];
  std::memcpy(parts, &vector, sizeof(vector));
  std::uint64_t any = 0;
  for (const std::uint64_t part : parts) any |= part;
  return any == 0;
}

// A byte in each of four: what dot4() multiplies.
ROTA_SIMD_INLINE U8s four_bytes(const void* at) noexcept {
  return same_bits<U8s>(U32s{} + load_bits<std::uint32_t>(at));
}

// Operands of dot4() where no instruction takes bytes: even and odd ones apart.
struct Halves {
  I16s even, odd;
};
ROTA_SIMD_INLINE Halves unsigned_halves(U8s bytes) noexcept {
  using Pairs [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::uint16_t;
  const auto pairs = same_bits<Pairs>(bytes);
  return {same_bits<I16s>(pairs & 0xff), same_bits<I16s>(pairs >> 8)};
}
ROTA_SIMD_INLINE Halves signed_halves(U8s bytes) noexcept {
  const auto pairs = same_bits<I16s>(bytes);
  return {(pairs << 8) >> 8, pairs >> 8};
}

}  // namespace rota::core::ROTA_ISA

#include ROTA_ISA_FILE

namespace rota::core::ROTA_ISA {

#if !defined(ROTA_ISA_DOTPROD)

// Adds to each sum four products of bytes. Sets that have an instruction for it say how themselves.
#if !defined(ROTA_ISA_VNNI)
using Unsigned = Halves;
using Signed = Halves;
ROTA_SIMD_INLINE Unsigned as_unsigned(U8s bytes) noexcept { return unsigned_halves(bytes); }
ROTA_SIMD_INLINE Signed as_signed(U8s bytes) noexcept { return signed_halves(bytes); }

ROTA_SIMD_INLINE void dot4(I32s& sum, Unsigned a, Signed b) noexcept {
  sum += pair_products(a.even, b.even) + pair_products(a.odd, b.odd);
}
#endif

struct Products {
  using Unsigned = ROTA_ISA::Unsigned;
  using Signed = ROTA_ISA::Signed;
  ROTA_SIMD_INLINE static Unsigned as_unsigned(U8s bytes) noexcept { return ROTA_ISA::as_unsigned(bytes); }
  ROTA_SIMD_INLINE static Signed as_signed(U8s bytes) noexcept { return ROTA_ISA::as_signed(bytes); }
  ROTA_SIMD_INLINE static void dot4(I32s& sum, Unsigned a, Signed b) noexcept { ROTA_ISA::dot4(sum, a, b); }
};

// Where bytes with a sign are at most 64 in magnitude, or those without are at most 128: sums of two products fit 16
// bits then, and pmaddubsw, which saturates, multiplies bytes where nothing else does.
#if ROTA_ISA_WIDTH >= 8 && !defined(ROTA_ISA_VNNI)
struct SmallProducts {
  using Unsigned = U8s;
  using Signed = U8s;
  ROTA_SIMD_INLINE static Unsigned as_unsigned(U8s bytes) noexcept { return bytes; }
  ROTA_SIMD_INLINE static Signed as_signed(U8s bytes) noexcept { return bytes; }
  ROTA_SIMD_INLINE static void dot4(I32s& sum, Unsigned a, Signed b) noexcept { dot4_small(sum, a, b); }
};
#else
using SmallProducts = Products;
#endif

#endif

inline constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: the last bits of a sum with it are the nearest integer

// The nearest integers of products below 2^22.
ROTA_SIMD_INLINE I32s nearest_product(F32s a, F32s b) noexcept {
  return same_bits<I32s>(multiply_add(a, b, all(kMagic))) - same_bits<I32s>(all(kMagic));
}

#if ROTA_ISA_WIDTH != 16
// Of numbers up to 255.
ROTA_SIMD_INLINE void store_as_bytes(const U32s (&numbers)[4], void* at) noexcept {
  for (std::uint64_t i = 0; i < 4; ++i) store_bits(low_bytes(numbers[i]), static_cast<std::byte*>(at) + i * kLanes);
}

// Numbers up to 0 less the integer below them; below -125, any.
ROTA_SIMD_INLINE F32s above_floor(F32s numbers) noexcept {
#if !defined(__aarch64__)
  numbers = numbers < -125.0F ? F32s{} : numbers;
#endif
  return numbers - ((numbers - 0.5F + kMagic) - kMagic);
}

// Times 2 to the integer below the exponents, which are up to 0; below -125, 0. NaN stays: nothing is added to its
// bits.
ROTA_SIMD_INLINE F32s times_power_of_floor(F32s factors, F32s exponents) noexcept {
  const I32s floors = same_bits<I32s>(up_to_zero(exponents) - 0.5F + kMagic) << 23;  // in the bits of an exponent
  const F32s powers = same_bits<F32s>(same_bits<I32s>(factors) + floors);
  return exponents < -125.0F ? F32s{} : powers;
}
#endif

// One number of all lanes, always in the same order.
struct Sum {
  template <class Vector>
  ROTA_SIMD_INLINE static Vector of(Vector a, Vector b) noexcept {
    return a + b;
  }
};
struct Largest {  // NaN is never the largest
  template <class Vector>
  ROTA_SIMD_INLINE static Vector of(Vector a, Vector b) noexcept {
#if defined(__aarch64__)
    return same_bits<Vector>(vmaxnmq_f32(same_bits<float32x4_t>(a), same_bits<float32x4_t>(b)));
#else
    return a > b ? a : b;
#endif
  }
};

// Each quad of the vector, combined into one.
template <class Combined>
ROTA_SIMD_INLINE F32Quad fold_quads(F32s vector) noexcept {
  F32Quad quads[kLanes / 4];
  std::memcpy(quads, &vector, sizeof(vector));
  for (std::uint64_t count = kLanes / 8; count > 0; count /= 2) {
    for (std::uint64_t i = 0; i < count; ++i) quads[i] = Combined::of(quads[i], quads[i + count]);
  }
  return quads[0];
}

// Of four vectors at once.
template <class Combined>
ROTA_SIMD_INLINE F32Quad fold_four(F32s a, F32s b, F32s c, F32s d) noexcept {
#if ROTA_ISA_WIDTH == 16
#define ROTA_EVEN 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define ROTA_ODD 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define ROTA_LOW 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define ROTA_HIGH 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif ROTA_ISA_WIDTH == 8
#define ROTA_EVEN 0, 8, 1, 9, 4, 12, 5, 13
#define ROTA_ODD 2, 10, 3, 11, 6, 14, 7, 15
#define ROTA_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define ROTA_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#else
#define ROTA_EVEN 0, 4, 1, 5
#define ROTA_ODD 2, 6, 3, 7
#define ROTA_LOW 0, 1, 4, 5
#define ROTA_HIGH 2, 3, 6, 7
#endif
  const F32s ab = Combined::of(__builtin_shufflevector(a, b, ROTA_EVEN), __builtin_shufflevector(a, b, ROTA_ODD));
  const F32s cd = Combined::of(__builtin_shufflevector(c, d, ROTA_EVEN), __builtin_shufflevector(c, d, ROTA_ODD));
  const F32s all = Combined::of(__builtin_shufflevector(ab, cd, ROTA_LOW), __builtin_shufflevector(ab, cd, ROTA_HIGH));
#undef ROTA_EVEN
#undef ROTA_ODD
#undef ROTA_LOW
#undef ROTA_HIGH
  return fold_quads<Combined>(all);  // each has parts of a, b, c and d
}

template <class Combined>
ROTA_SIMD_INLINE float fold(F32s vector) noexcept {
  F32Quad all = fold_quads<Combined>(vector);
  all = Combined::of(all, __builtin_shufflevector(all, all, 2, 3, 0, 1));
  all = Combined::of(all, __builtin_shufflevector(all, all, 1, 0, 3, 2));
  return all[0];
}

}  // namespace rota::core::ROTA_ISA
