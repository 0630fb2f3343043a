#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rota::core {

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t step) { return value - value % step; }
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return round_down(value + step - 1, step); }

// One index of a strided tensor, in elements.
struct Axis {
  std::uint64_t count;
  std::uint64_t stride;
};
inline constexpr std::size_t kMaxAxes = 4;  // of one tensor

struct ByteRange {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t size() const noexcept { return end - begin; }
  bool overlaps(const ByteRange& other) const noexcept {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};

// What the tensor touches, or nothing where that passes 2^64. An empty tensor touches an empty range.
std::optional<ByteRange> byte_range(std::uint64_t offset, std::span<const Axis> axes, std::uint32_t element_bytes);

// Whether two indices may share an element. Says so of every tensor where they do, and of
// strangely interleaved ones where they do not; never of a permuted, padded or sliced layout.
bool may_overlap_itself(std::span<const Axis> axes);

}  // namespace rota::core
