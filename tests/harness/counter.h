#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rota/rota.h"

namespace rota::test {

inline std::uint64_t read_counter(const Buffer& buffer, std::uint64_t offset_bytes = 0) {
  std::array<std::byte, sizeof(std::uint64_t)> bytes{};
  buffer.read(bytes, offset_bytes).value();
  return std::bit_cast<std::uint64_t>(bytes);
}

inline Buffer new_counter(Device& device, std::uint64_t start = 0) {
  Buffer counter = device.allocate(sizeof(start)).value();
  counter.write(std::as_bytes(std::span(&start, 1))).value();
  return counter;
}

}  // namespace rota::test
