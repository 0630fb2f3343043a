#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rota/kv_spec.h"

// The pure half of a cache: what a description means, before any device is asked.

namespace rota::cache {

// When pages of a sequence are sealed and when they leave, by its length before a step.
struct PageRule {
  std::uint64_t page = 128, tail = 128, sinks = 0;
  std::optional<std::uint64_t> window = {};
  bool seals = false;

  // Pages before this one are seen by no row from `position` on.
  constexpr std::uint64_t first_seen_page(std::uint64_t position) const noexcept {
    return window && position >= *window ? (position + 1 - *window) / page : 0;
  }

  // Pages before this one may leave: even with the whole tail taken back, the newest token does not see them.
  constexpr std::uint64_t first_page(std::uint64_t length) const noexcept {
    return length > tail ? first_seen_page(length - tail - 1) : 0;
  }

  // Pages before this one are wholly older than the tail.
  constexpr std::uint64_t sealed_pages(std::uint64_t length) const noexcept {
    return seals && length > tail ? (length - tail) / page : 0;
  }

  constexpr std::uint64_t pages(std::uint64_t tokens) const noexcept { return (tokens + page - 1) / page; }
};

inline constexpr std::size_t kGroupSideCounters = 2;  // of 64 bits

// What the host keeps, at most: of a sequence, of one of its group_sides, of a token of a step, and of a page that was
// used.
inline constexpr std::uint64_t kSequenceHostBytes = 512, kSequenceGroupSideHostBytes = 320, kStepTokenHostBytes = 16;
inline constexpr std::uint64_t kPageHostBytes = 32;

// One side of a group: its keys or its values.
struct GroupSide {
  std::size_t group = 0;
  KvSide side = KvSide::keys;
  std::uint64_t layers = 0, heads = 0, dim = 0;
  DType dense = DType::f16;
  std::optional<PageFormat> format = {};
  PageRule rule = {};
  KvSideMemory memory = {};

  std::string name() const;  // "the keys of groups[0]"
  std::uint64_t slot_bytes() const noexcept { return layers * heads * dim * info(dense).bytes; }
};

struct Layer {
  std::uint32_t number = 0;  // the model's own
  std::size_t group = 0, index = 0;
};

struct Layout {
  std::vector<GroupSide> group_sides = {};  // two for each group: keys, values
  std::vector<Layer> layers = {};           // by their number
  KvMemory memory = {};
};

constexpr std::size_t group_side_of(std::size_t group, KvSide side) noexcept {
  return 2 * group + (side == KvSide::keys ? 0 : 1);
}

// Refuses every bad description, or says what is to be allocated.
Result<Layout> lay_out(const KvCacheSpec& spec);

}  // namespace rota::cache
