#include "codec/dense/rows.h"

#include <array>
#include <utility>

#include "codec/dense/dense.params.h"

namespace rota::codec {

static_assert(ops::kF32 == static_cast<std::uint32_t>(DType::f32) &&
              ops::kF16 == static_cast<std::uint32_t>(DType::f16) &&
              ops::kBf16 == static_cast<std::uint32_t>(DType::bf16));

// Indexed by both types' numbers.
using ConvertRows = std::array<ConvertRow, kDTypes.size() * kDTypes.size()>;

}  // namespace rota::codec

#define ROTA_LANES_FILE "codec/dense/rows_lanes.h"
#include "core/for_each_isa.h"

namespace rota::codec {

ConvertRow row_converter(DType from, DType to, core::Isa isa) noexcept {
  static constexpr std::array<ConvertRows, core::kIsas.size()> kByIsa{ROTA_BY_ISA(kRows)};
  return kByIsa[static_cast<std::size_t>(isa)]
               [static_cast<std::size_t>(from) * kDTypes.size() + static_cast<std::size_t>(to)];
}

}  // namespace rota::codec
