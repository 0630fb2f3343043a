#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "core/extent.h"

namespace rota::core {

// Bytes, kept as ranges that neither overlap nor touch: what is asked and added costs the logarithm of their number.
class RangeSet {
 public:
  bool overlaps(const ByteRange& range) const noexcept {
    const auto beyond = ends_.lower_bound(range.end);  // begins too late, and the one before ends last of the others
    return beyond != ends_.begin() && std::prev(beyond)->second > range.begin;
  }

  // Precondition: the range is not empty.
  void add(const ByteRange& range) {
    auto next = ends_.upper_bound(range.begin);
    if (next == ends_.begin() || std::prev(next)->second < range.begin) {
      next = std::next(ends_.emplace_hint(next, range.begin, range.end));
    }
    std::uint64_t& end = std::prev(next)->second;
    end = std::max(end, range.end);
    while (next != ends_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by where a range begins
};

}  // namespace rota::core
