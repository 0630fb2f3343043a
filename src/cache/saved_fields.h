#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/little_endian.h"
#include "rota/kv_saved.h"

// Numbers and sums in the bytes of a saved sequence.

namespace rota::cache {

// What ends each part ends the header, too, with 0 for a number.
inline constexpr std::uint64_t kSumBytes = kSavedSumBytes;

// Bytes that are read before there is memory for more, and summed while they are in a core's cache.
inline constexpr std::uint64_t kPiece = std::uint64_t{1} << 16;

inline Error bad_saved(const std::string& what) { return {Errc::io, core::text("saved sequence: {}", what)}; }

inline std::array<std::byte, kSumBytes> sum_and(std::uint32_t sum, std::uint32_t number) noexcept {
  std::array<std::byte, kSumBytes> bytes{};
  core::put_little_endian(std::span(bytes).first<4>(), sum);
  core::put_little_endian(std::span(bytes).last<4>(), number);
  return bytes;
}

// Lengthens `to` up to `size` bytes. Memory is taken as bytes come: a size that is not true costs at most twice what
// was there.
inline Status read_up_to(const ByteSource& source, std::uint64_t size, std::vector<std::byte>& to) {
  while (to.size() < size) {
    const std::uint64_t old = to.size();
    to.resize(static_cast<std::size_t>(std::min(size, old + std::max(old, kPiece))));
    if (Status status = source(std::span(to).subspan(static_cast<std::size_t>(old))); !status) return status;
  }
  return {};
}

// Reads as far as there are bytes; what lies beyond is zero, and ok() is false from then on.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  std::uint32_t u32() noexcept { return static_cast<std::uint32_t>(core::little_endian(bytes(4))); }
  std::uint64_t u64() noexcept { return core::little_endian(bytes(8)); }
  std::span<const std::byte> bytes(std::uint64_t size) noexcept {
    ok_ = ok_ && size <= rest_.size();
    const auto taken = rest_.first(ok_ ? static_cast<std::size_t>(size) : 0);
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  bool ok() const noexcept { return ok_; }
  std::uint64_t left() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace rota::cache
