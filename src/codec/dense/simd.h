// Dense elements, as many at a time as a register holds f32, with the bits of rota/dtype.h whatever the instruction
// set. Included through core/for_each_isa.h, once per set: so it has no guard.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif

namespace rota::codec::ROTA_ISA {

using namespace core::ROTA_ISA;
using core::ROTA_ISA::load_bits;  // as those below

// Of so many elements, how many one step takes.
ROTA_SIMD_INLINE std::uint64_t lanes_of(std::uint64_t left) noexcept { return left < kLanes ? left : kLanes; }

ROTA_SIMD_INLINE U16s bf16_from_f32s(F32s wide) noexcept {
  const U32s bits = same_bits<U32s>(wide);
  const U32s top = bits >> 16;
  const U32s rounded = (bits + 0x7fffU + (top & 1U)) >> 16;
  const U32s chosen = (bits & 0x7fffffffU) > 0x7f800000U ? (top | 0x40U) : rounded;
  return __builtin_convertvector(chosen, U16s);
}

// kLanes elements side by side.
template <DType T>
ROTA_SIMD_INLINE F32s load(const std::byte* at) noexcept {
  if constexpr (T == DType::f32) {
    return load_bits<F32s>(at);
  } else if constexpr (T == DType::f16) {
    return f32s_from_f16(load_bits<U16s>(at));
  } else {
    return same_bits<F32s>(__builtin_convertvector(load_bits<U16s>(at), U32s) << 16);
  }
}

template <DType T>
ROTA_SIMD_INLINE void store(F32s wide, std::byte* at) noexcept {
  if constexpr (T == DType::f32) {
    store_bits(wide, at);
  } else {
    const U16s half = T == DType::f16 ? f16_from_f32s(wide) : bf16_from_f32s(wide);
    store_bits(half, at);
  }
}

// Fewer elements than lanes, or elements apart from each other. Lanes without an element are zero.
struct Spread {
  std::uint64_t count;
  std::uint64_t stride_bytes;
};

template <std::uint64_t kBytes>
ROTA_SIMD_INLINE void gather(const std::byte* at, Spread spread, std::byte* elements) noexcept {
  std::memset(elements, 0, kLanes * kBytes);
  for (std::uint64_t i = 0; i < spread.count; ++i) {
    std::memcpy(elements + i * kBytes, at + i * spread.stride_bytes, kBytes);
  }
}

template <DType T>
ROTA_SIMD_INLINE F32s load(const std::byte* at, Spread spread) noexcept {
  std::byte elements[kLanes * info(T).bytes];
  gather<info(T).bytes>(at, spread, elements);
  return load<T>(elements);
}

template <class Vector>
ROTA_SIMD_INLINE Vector load_bits(const std::byte* at, Spread spread) noexcept {
  std::byte elements[sizeof(Vector)];
  gather<sizeof(Vector) / kLanes>(at, spread, elements);
  return load_bits<Vector>(elements);
}

template <DType T>
ROTA_SIMD_INLINE void store(F32s wide, std::byte* at, Spread spread) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  std::byte elements[kLanes * kBytes];
  store<T>(wide, elements);
  for (std::uint64_t i = 0; i < spread.count; ++i) {
    std::memcpy(at + i * spread.stride_bytes, elements + i * kBytes, kBytes);
  }
}

}  // namespace rota::codec::ROTA_ISA
