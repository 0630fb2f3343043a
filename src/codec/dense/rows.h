#pragma once

#include <cstddef>
#include <cstdint>

#include "rota/dtype.h"

namespace rota::codec {

// Converts `count` elements that lie side by side, with the bits that rota/dtype.h defines.
using ConvertRow = void (*)(const std::byte* from, std::byte* to, std::uint64_t count) noexcept;

// The fastest for this CPU, or the one that every CPU has.
ConvertRow row_converter(DType from, DType to) noexcept;
ConvertRow portable_row_converter(DType from, DType to) noexcept;

}  // namespace rota::codec
