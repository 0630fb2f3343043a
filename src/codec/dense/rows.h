#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "rota/dtype.h"

namespace rota::codec {

// Converts `count` elements that lie side by side, with the bits that rota/dtype.h defines.
using ConvertRow = void (*)(const std::byte* from, std::byte* to, std::uint64_t count) noexcept;

ConvertRow row_converter(DType from, DType to, core::Isa isa = core::best_isa()) noexcept;

}  // namespace rota::codec
