// Included by unseal_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bits.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "codec/turbo/rotation_simd.h"
#include "ops/seal/unseal_rows.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;

// Levels of codes. A table that registers hold is not read again for each code.
ROTA_SIMD_INLINE void look_up(const UnsealCall& call, const std::uint8_t* codes, std::int32_t* levels) noexcept {
  const std::uint64_t dim = call.params.layout_.dim;
#if ROTA_ISA_WIDTH == 16
  if (call.params.layout_.bits <= 4) {
    const __m512i table = _mm512_loadu_si512(call.levels);
    for (std::uint64_t i = 0; i < dim; i += simd::kLanes) {
      const __m512i code = _mm512_maskz_cvtepu8_epi32(0xffff, simd::load_bits<__m128i>(codes + i));
      _mm512_store_si512(levels + i, _mm512_maskz_permutexvar_epi32(0xffff, code, table));
    }
    return;
  }
#endif
  for (std::uint64_t i = 0; i < dim; ++i) levels[i] = call.levels[codes[i]];
}

ROTA_SIMD void unseal_token(const UnsealCall& call, const std::uint8_t* codes, float factor, const float* mean,
                            UnsealScratch& scratch) noexcept {
  look_up(call, codes, scratch.mixed);
  const std::uint64_t dim = call.params.layout_.dim;
  const float limit = call.params.limit;
  const std::uint64_t size = std::uint64_t{1} << call.params.rotation.k;
  auto* const mixed = reinterpret_cast<simd::I32s*>(scratch.mixed);
  auto* const other = reinterpret_cast<simd::I32s*>(scratch.other);
  simd::hadamard(mixed, dim, size);
  const simd::I32s* rotated = mixed;
  if (call.params.rotation.m > 1) {
    simd::hartley(
        mixed, other,
        {reinterpret_cast<const std::int32_t*>(call.table + kHartleyRow), call.params.rotation.m, size, kUnsealShift});
    rotated = other;
  }
  for (std::uint64_t i = 0; i < dim; i += simd::kLanes) {
    const auto negated = simd::load_bits<simd::I32s>(scratch.negated + i);
    const simd::I32s turned = (rotated[i / simd::kLanes] ^ negated) - negated;
    simd::F32s value = __builtin_convertvector(turned, simd::F32s) * factor;
    value += simd::load_bits<simd::F32s>(mean + i);
    value = value > limit ? simd::all(limit) : value;
    value = value < -limit ? simd::F32s{} - limit : value;
    std::memcpy(scratch.values + i, &value, sizeof(value));
  }
}

}  // namespace rota::ops::ROTA_ISA
