#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "rota/dtype.h"

namespace rota::codec {

// Elements of a row, `stride` elements apart.
struct SourceRow {
  const std::byte* at;
  std::uint64_t stride = 1;
};
struct TargetRow {
  std::byte* at;
  std::uint64_t stride = 1;
};

// Converts `count` elements, with the bits that rota/dtype.h defines.
using ConvertRow = void (*)(SourceRow from, TargetRow to, std::uint64_t count) noexcept;

ConvertRow row_converter(DType from, DType to, core::Isa isa = core::best_isa()) noexcept;

// How many of `count` elements are infinite or NaN.
using CountRow = std::uint64_t (*)(SourceRow row, std::uint64_t count) noexcept;

CountRow non_finite_counter(DType dtype, core::Isa isa = core::best_isa()) noexcept;

}  // namespace rota::codec
