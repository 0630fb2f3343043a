#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/turbo/page.shared.h"

namespace rota::codec {

// A tile's codes, one byte each, as [token][dim], into a page and back.
void pack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::uint8_t* codes, std::byte* page) noexcept;
void unpack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::byte* page,
                 std::uint8_t* codes) noexcept;

}  // namespace rota::codec
