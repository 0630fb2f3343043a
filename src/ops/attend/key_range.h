#pragma once

#include <cstdint>

namespace rota::ops {

// Some keys of a sequence, by position: [begin, end).
struct KeyRange {
  std::uint64_t begin, end;

  bool holds(std::uint64_t key) const noexcept { return key >= begin && key < end; }
  bool empty() const noexcept { return begin >= end; }
  bool operator==(const KeyRange&) const = default;
  KeyRange in(const KeyRange& other) const noexcept {
    return {begin > other.begin ? begin : other.begin, end < other.end ? end : other.end};
  }
};

}  // namespace rota::ops
