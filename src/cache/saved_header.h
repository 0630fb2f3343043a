#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cache/layout.h"
#include "rota/kv_saved.h"

// The header of a saved sequence (docs/saved-sequences.md), without a cache or a device.

namespace rota::cache {

// A header, and what its groups mean.
struct SavedLayout {
  KvSaved saved;
  std::vector<GroupSide> group_sides;

  const KvSavedSide& side(std::size_t group_side) const noexcept {
    const KvSavedGroup& group = saved.groups[group_side / 2];
    return group_side % 2 == 0 ? group.k : group.v;
  }
  KvSavedSide& side(std::size_t group_side) noexcept {
    KvSavedGroup& group = saved.groups[group_side / 2];
    return group_side % 2 == 0 ? group.k : group.v;
  }
};

// Fills in what follows from the groups and the pages: has_sinks and every count of bytes. An error beyond 2^60 bytes.
Status complete(SavedLayout& layout);

// Precondition: complete().
std::vector<std::byte> saved_header(const SavedLayout& layout);

// What begin, end, groups, pages and notes mean, checked and completed.
Result<SavedLayout> saved_layout_of(KvSaved saved);

Result<SavedLayout> read_saved_layout(const ByteSource& source);

// Whether pages of the one may be pages of the other.
Status check_same_groups(std::string_view op, const SavedLayout& saved, const KvCacheSpec& spec, const Layout& layout);

}  // namespace rota::cache
