#include "core/extent.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace rota::core {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

// sum += a * b, unless that passes 2^64.
bool add_product(std::uint64_t& sum, std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > kMax / a) return false;
  if (a * b > kMax - sum) return false;
  sum += a * b;
  return true;
}

}  // namespace

std::optional<ByteRange> byte_range(std::uint64_t offset, std::span<const Axis> axes, std::uint32_t element_bytes) {
  std::uint64_t first = 0;
  if (!add_product(first, offset, element_bytes)) return std::nullopt;
  if (std::ranges::any_of(axes, [](const Axis& axis) { return axis.count == 0; })) return ByteRange{first, first};

  std::uint64_t last = offset;
  for (const Axis& axis : axes) {
    if (!add_product(last, axis.count - 1, axis.stride)) return std::nullopt;
  }
  if (last == kMax) return std::nullopt;
  std::uint64_t end = 0;
  if (!add_product(end, last + 1, element_bytes)) return std::nullopt;
  return ByteRange{first, end};
}

bool may_overlap_itself(std::span<const Axis> axes) {
  std::vector<Axis> moving;
  for (const Axis& axis : axes) {
    if (axis.count == 0) return false;
    if (axis.count > 1) moving.push_back(axis);
  }
  std::ranges::sort(moving, {}, &Axis::stride);
  std::uint64_t reach = 0;  // the largest distance that the axes before this one can make
  for (const Axis& axis : moving) {
    if (axis.stride <= reach) return true;
    if (!add_product(reach, axis.count - 1, axis.stride)) return true;
  }
  return false;
}

}  // namespace rota::core
