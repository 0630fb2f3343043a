// Included by rotation.cpp through core/for_each_isa.h.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "codec/turbo/rotation_simd.h"

namespace rota::codec::ROTA_ISA {

ROTA_SIMD void hadamard_f32(float* values, std::uint64_t dim, std::uint64_t block) noexcept {
  hadamard(reinterpret_cast<F32s*>(values), dim, block);
}

}  // namespace rota::codec::ROTA_ISA
