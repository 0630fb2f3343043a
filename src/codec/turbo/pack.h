#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/turbo/page.shared.h"
#include "rota/dtype.h"

namespace rota::codec {

// A tile's codes, one byte each, as [token][dim], into a page and back.
void pack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::uint8_t* codes, std::byte* page) noexcept;
void unpack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::byte* page,
                 std::uint8_t* codes) noexcept;

// A scale or a number of the mean.
inline std::uint32_t load_half(const std::byte* at) noexcept {
  std::uint16_t half = 0;
  std::memcpy(&half, at, sizeof(half));
  return half;
}

// Pages hold no infinity and no NaN, but whoever made the page may have erred.
inline float finite_half(std::uint32_t half) noexcept {
  return (half & 0x7fffU) < 0x7c00U ? f32_from_f16(static_cast<std::uint16_t>(half)) : 0.0F;
}

}  // namespace rota::codec
