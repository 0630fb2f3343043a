#include "core/extent.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>

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
  assert(axes.size() <= kMaxAxes);
  std::array<Axis, kMaxAxes> room{};  // those that move, by stride
  std::size_t count = 0;
  for (const Axis& axis : axes) {
    if (axis.count == 0) return false;
    if (axis.count == 1) continue;
    std::size_t place = count++;
    for (; place > 0 && room[place - 1].stride > axis.stride; --place) room[place] = room[place - 1];
    room[place] = axis;
  }
  std::uint64_t reach = 0;  // the largest distance that the axes before this one can make
  for (const Axis& axis : std::span(room).first(count)) {
    if (axis.stride <= reach) return true;
    if (!add_product(reach, axis.count - 1, axis.stride)) return true;
  }
  return false;
}

}  // namespace rota::core
