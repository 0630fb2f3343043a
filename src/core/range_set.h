#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "core/extent.h"

namespace rota::core {

// Bytes of any number of memories. What is asked and added costs the logarithm of the number of ranges; a few are
// looked through, which is faster, and takes no memory once a set has been filled and cleared.
class RangeSet {
 public:
  bool overlaps(const void* memory, const ByteRange& range) const noexcept {
    for (const Range& other : recent_) {
      if (other.place.memory == memory && other.place.begin < range.end && range.begin < other.end) return true;
    }
    if (ends_.empty()) return false;
    const auto beyond = ends_.lower_bound({memory, range.end});  // begins too late; the one before it ends last
    return beyond != ends_.begin() && std::prev(beyond)->first.memory == memory &&
           std::prev(beyond)->second > range.begin;
  }

  // Precondition: the range is not empty.
  void add(const void* memory, const ByteRange& range) {
    if (recent_.size() == kMostRecent) {
      for (const Range& older : recent_) add_to_ends(older);
      recent_.clear();
    }
    if (recent_.empty()) recent_.reserve(kMostRecent);
    recent_.push_back({{memory, range.begin}, range.end});
  }

  void clear() noexcept {
    recent_.clear();
    ends_.clear();
  }

 private:
  static constexpr std::size_t kMostRecent = 32;

  struct Place {
    const void* memory;
    std::uint64_t begin;

    friend bool operator<(const Place& a, const Place& b) noexcept {
      return a.memory != b.memory ? std::less<>()(a.memory, b.memory) : a.begin < b.begin;
    }
  };
  struct Range {
    Place place;
    std::uint64_t end;
  };

  // Ranges there neither overlap nor touch.
  void add_to_ends(const Range& range) {
    const auto& [memory, begin] = range.place;
    auto next = ends_.upper_bound(range.place);
    if (next == ends_.begin() || std::prev(next)->first.memory != memory || std::prev(next)->second < begin) {
      next = std::next(ends_.emplace_hint(next, range.place, range.end));
    }
    std::uint64_t& end = std::prev(next)->second;
    end = std::max(end, range.end);
    while (next != ends_.end() && next->first.memory == memory && next->first.begin <= end) {
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
  }

  std::vector<Range> recent_;
  std::map<Place, std::uint64_t> ends_;  // by where a range begins
};

}  // namespace rota::core
