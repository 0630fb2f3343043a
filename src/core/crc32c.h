#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rota::core {

// CRC-32C (Castagnoli; RFC 3720, B.4) of bytes that follow those of which `before` is the sum; 0 where there are none.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

// The same without instructions for it.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace rota::core
