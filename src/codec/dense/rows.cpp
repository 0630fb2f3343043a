#include "codec/dense/rows.h"

#include <array>
#include <limits>

#include "codec/dense/dense.params.h"
#include "codec/dense/type_pairs.h"

namespace rota::codec {

static_assert(ops::kF32 == static_cast<std::uint32_t>(DType::f32) &&
              ops::kF16 == static_cast<std::uint32_t>(DType::f16) &&
              ops::kBf16 == static_cast<std::uint32_t>(DType::bf16));

}  // namespace rota::codec

#define ROTA_SIMD_FILE "codec/dense/rows_simd.h"
#include "core/for_each_isa.h"

namespace rota::codec {

ConvertRow row_converter(DType from, DType to, core::Isa isa) noexcept {
  static constexpr std::array<ByTypePair<ConvertRow>, core::kIsas.size()> kByIsa{ROTA_BY_ISA(kRows)};
  return kByIsa[static_cast<std::size_t>(isa)][type_pair(from, to)];
}

CountRow non_finite_counter(DType dtype, core::Isa isa) noexcept {
  static constexpr std::array<std::array<CountRow, kDTypes.size()>, core::kIsas.size()> kByIsa{
      ROTA_BY_ISA(kNonFiniteCounters)};
  return kByIsa[static_cast<std::size_t>(isa)][static_cast<std::size_t>(dtype)];
}

}  // namespace rota::codec
