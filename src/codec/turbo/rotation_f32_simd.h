// Included by rotation.cpp through core/for_each_isa.h.

#if !defined(ROTA_ISA)
#include <bit>

#include "codec/turbo/rotation.h"
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "codec/turbo/rotation_simd.h"

namespace rota::codec::ROTA_ISA {

// Changes the sign of each number whose bit is set: without branches, since nobody could predict them.
ROTA_SIMD void negate_f32(float* values, std::uint64_t dim, const std::uint32_t* signs) noexcept {
  for (std::uint64_t first = 0; first < dim; first += 32) {
    const std::uint32_t word = signs[first / 32];
    const auto count = static_cast<std::uint32_t>(dim - first < 32 ? dim - first : 32);
    for (std::uint32_t i = 0; i < count; ++i) {
      values[first + i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[first + i]) ^ (word >> i << 31));
    }
  }
}

ROTA_SIMD void scale_f32(float* values, std::uint64_t dim, float factor) noexcept {
  for (std::uint64_t i = 0; i < dim; ++i) values[i] *= factor;
}

ROTA_SIMD void hadamard_f32(float* values, std::uint64_t dim, std::uint64_t block) noexcept {
  hadamard(reinterpret_cast<F32s*>(values), dim, block);
}

inline constexpr RotationSimd kRotationSimd{hadamard_f32, negate_f32, scale_f32};

}  // namespace rota::codec::ROTA_ISA
