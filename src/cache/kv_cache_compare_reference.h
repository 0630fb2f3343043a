#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "cache/kv_cache_reference.h"
#include "rota/rota.h"
#include "runtime/inside.h"

// A cache's bytes against the lists.

namespace rota::cache::reference {

// Old pages are looked at now and then: nobody should have touched them.
enum class Extent : std::uint8_t { newest_pages, all_pages };

// One layer of a sequence's keys or values: in the cache, and in the lists.
struct ComparedSide {
  const KvSideView& found;  // of this sequence alone
  const SequenceSide& wanted;
  const GroupSideSpec& spec;
  std::size_t layer;     // of the group
  std::uint64_t length;  // tokens

  const KvPages& pages() const { return *found.sequences.front(); }
  bool has_sinks() const { return spec.group->sinks > 0 && pages().first_page == 0 && pages().sealed_pages > 0; }
  // Its vectors in a token's values of all layers.
  std::uint64_t offset() const { return layer * spec.heads * spec.dim; }
};

class Comparison {
 public:
  // Forgets what was read: commands may have run since.
  void restart() {
    contents_.clear();
    wrong_values_ = 0;
  }
  void forgive() { wrong_values_ = 0; }

  // Head vectors and sealed heads that differ.
  std::uint64_t wrong_values() const { return wrong_values_; }

  // Page tables must agree; values that do not are counted.
  void compare(const ComparedSide& side, Extent extent) {
    const KvPages& pages = side.pages();
    const std::uint64_t size = side.spec.group->page;
    ASSERT_EQ(pages.first_page, side.wanted.first_page());
    ASSERT_EQ(pages.sealed_pages, side.wanted.sealed_pages());
    ASSERT_EQ(pages.page_table.size(), (side.length + size - 1) / size - pages.first_page);
    ASSERT_EQ(pages.sinks.has_value(), side.has_sinks());
    const std::uint64_t from = extent == Extent::all_pages ? 0 : std::max<std::uint64_t>(pages.sealed_pages, 2) - 2;
    const std::uint64_t end = pages.first_page + pages.page_table.size();
    for (std::uint64_t page = std::max(pages.first_page, from); page < end; ++page) compare_page(side, page);
    for (std::uint64_t t = 0; side.has_sinks() && t < side.spec.group->sinks; ++t) {
      compare_slot(*side.found.sinks, *pages.sinks, t, side.wanted.sealed(0).sinks[t]->data() + side.offset());
    }
  }

 private:
  void compare_page(const ComparedSide& side, std::uint64_t page) {
    const std::uint64_t size = side.spec.group->page;
    const std::uint32_t physical = side.pages().page_table[page - side.pages().first_page];
    const bool of_step = side.pages().step_page && page >= *side.pages().step_page;
    if (page < side.pages().sealed_pages) {
      const SealedView& sealed = *side.found.sealed;
      for (std::uint64_t head = 0; head < side.spec.heads; ++head) {
        const std::vector<std::byte>& bytes = side.wanted.sealed(page).bytes[side.layer * side.spec.heads + head];
        const std::uint64_t at =
            sealed.offset_bytes + physical * sealed.page_stride_bytes + head * sealed.head_stride_bytes;
        if (std::memcmp(bytes_of(sealed.buffer).data() + at, bytes.data(), bytes.size()) != 0) ++wrong_values_;
      }
      return;
    }
    for (std::uint64_t t = 0; t < size && page * size + t < side.length; ++t) {
      compare_slot(of_step ? *side.found.step : side.found.dense, physical, t,
                   side.wanted.dense(page * size + t)->data() + side.offset());
    }
  }

  // One token of one layer.
  void compare_slot(const SlotView& view, std::uint64_t page, std::uint64_t slot, const float* values) {
    const std::vector<std::byte>& bytes = bytes_of(view.buffer);
    for (std::uint64_t head = 0; head < view.shape.heads; ++head) {
      const std::uint64_t at =
          view.offset + page * view.page_stride + slot * view.slot_stride + head * view.head_stride;
      for (std::uint64_t d = 0; d < view.shape.dim; ++d) {
        const float wanted = values[head * view.shape.dim + d];
        float found = 0;
        if (view.dtype == DType::f32) {
          std::memcpy(&found, bytes.data() + (at + d) * 4, 4);
        } else {
          std::uint16_t half = 0;
          std::memcpy(&half, bytes.data() + (at + d) * 2, 2);
          found = view.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
        }
        if (found != wanted) ++wrong_values_;
      }
    }
  }

  // A device's memory, read once per comparison.
  const std::vector<std::byte>& bytes_of(const Buffer& buffer) {
    auto [found, fresh] = contents_.try_emplace(runtime::Inside::of(buffer).get());
    if (fresh) {
      found->second.resize(buffer.size_bytes());
      EXPECT_TRUE(buffer.read(found->second).ok());
    }
    return found->second;
  }

  std::map<const void*, std::vector<std::byte>> contents_;
  std::uint64_t wrong_values_ = 0;
};

// Who uses which page, as views tell.
class PageUsers {
 public:
  void add(std::uint64_t group_side, const KvPages& pages, std::uint32_t sequence) {
    for (std::size_t i = 0; i < pages.page_table.size(); ++i) {
      const std::uint64_t page = pages.first_page + i;
      const bool of_step = pages.step_page && page >= *pages.step_page;
      const std::uint64_t pool = page < pages.sealed_pages ? 0 : of_step ? 3 : 1;
      users_[{group_side, pool, pages.page_table[i]}].insert(sequence);
    }
    if (pages.sinks) users_[{group_side, 2, *pages.sinks}].insert(sequence);
  }

  // `all_seen`: no sequence has pages that no view shows, because a layer is between those that it had and will have.
  void compare(const KvCounters& counters, bool all_seen) const {
    std::array<std::uint64_t, 4> used{}, shared{};
    for (const auto& [page, users] : users_) {
      ++used.at(page[1]);
      if (users.size() > 1) ++shared.at(page[1]);
    }
    const std::array<const KvPoolCounters*, 4> pools{&counters.sealed, &counters.dense, &counters.sinks,
                                                     &counters.step};
    for (std::size_t pool = 0; pool < pools.size(); ++pool) {
      ASSERT_GE(pools[pool]->used, used[pool]) << "pool " << pool;
      ASSERT_GE(pools[pool]->shared, shared[pool]) << "pool " << pool;
      if (!all_seen) continue;
      ASSERT_EQ(pools[pool]->used, used[pool]) << "pool " << pool;
      ASSERT_EQ(pools[pool]->shared, shared[pool]) << "pool " << pool;
    }
  }

 private:
  std::map<std::array<std::uint64_t, 3>, std::set<std::uint32_t>> users_;  // by group side, pool and page
};

}  // namespace rota::cache::reference
