#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rota::core {

// A number of at most 8 bytes, lowest byte first.
inline std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

inline void put_little_endian(std::span<std::byte> bytes, std::uint64_t value) noexcept {
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
}

}  // namespace rota::core
