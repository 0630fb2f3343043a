#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "rota/rota.h"

namespace rota::test {

// A buffer whose middle is a test's and whose edges nobody may touch. All of it starts as 0xff, which
// is NaN in every dtype.
class Guarded {
 public:
  Guarded(Device& device, std::uint64_t elements, DType dtype, std::uint64_t guard_elements = 96)
      : buffer(device.allocate((elements + 2 * guard_elements) * info(dtype).bytes).value()),
        offset(guard_elements),
        size_bytes_(elements * info(dtype).bytes),
        guard_bytes_(guard_elements * info(dtype).bytes) {
    const std::vector<std::byte> poison(buffer.size_bytes(), kPoison);
    buffer.write(poison).value();
  }

  void write(std::span<const std::byte> bytes) { buffer.write(bytes, guard_bytes_).value(); }

  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(size_bytes_);
    buffer.read(bytes, guard_bytes_).value();
    return bytes;
  }

  bool guards_intact() const {
    std::vector<std::byte> all(buffer.size_bytes());
    buffer.read(all).value();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool guard = i < guard_bytes_ || i >= guard_bytes_ + size_bytes_;
      if (guard && all[i] != kPoison) return false;
    }
    return true;
  }

  static constexpr std::byte kPoison{0xff};

  Buffer buffer;
  std::uint64_t offset;  // of the middle, in elements

 private:
  std::uint64_t size_bytes_, guard_bytes_;
};

}  // namespace rota::test
