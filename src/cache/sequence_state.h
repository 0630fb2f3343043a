#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/group_side_memory.h"
#include "cache/layout.h"
#include "cache/page_use.h"
#include "cache/step.h"
#include "rota/kv_cache.h"

namespace rota::cache {

using Pages = std::shared_ptr<const KvPages>;

// An entry of a page table.
struct MappedPage {
  std::uint64_t logical;  // holds the positions from logical * page on
  PoolKind kind;
  std::uint32_t physical;  // in the pool of that kind
};

constexpr PoolKind kind_of(const KvPages& pages, std::uint64_t logical) noexcept {
  if (logical < pages.sealed_pages) return PoolKind::sealed;
  return pages.step_page && logical >= *pages.step_page ? PoolKind::step : PoolKind::dense;
}

template <class Visit>
void for_each_page(const KvPages& pages, const Visit& visit) {
  for (std::size_t i = 0; i < pages.page_table.size(); ++i) {
    const std::uint64_t logical = pages.first_page + i;
    visit(MappedPage{logical, kind_of(pages, logical), pages.page_table[i]});
  }
}

// The layers of a sequence go over to other pages, one layer after the other. A step that is longer than its dense
// pages does that, because the step's pages have room for one layer:
//
//   layer 0, done   | s0 s1 s2   s3 s4 s5 s6 | d7 |    SequenceState::group_sides: s3 to s6 were sealed, and what stays
//                                                      dense was copied to a page whose tokens are sealed now
//   layer 1         | s0 s1 s2 | d3 d4 | x5 x6 x7 |    `before`: d is dense, x dense in pages of the step
//   layer 2         | s0 s1 s2 | d3 d4 | .. .. .. |    `before`: not appended; its tokens come where layer 1's are
//
// Until the last layer is done the sequence uses both. A page that is sealed at a pace (PageRule::within) is the same,
// but that steps come and go meanwhile, and groups of layers begin and end at times of their own.
struct Transition {
  bool at_a_pace = false;
  std::vector<Pages> before;      // page tables of layers that are not done, as in Layout::group_sides
  std::vector<PageUse> leaving;   // pages of `before` that are not in SequenceState::group_sides
  std::vector<LayerMoves> moves;  // what makes a layer done, for each group side
  std::vector<LayerMark> done;    // one per layer of the layout
};

// A sequence as a value. Page tables are never changed but replaced, so that a copy costs a pointer per group side, and
// views and the state to go back to stay as they were.
struct SequenceState {
  std::uint64_t length = 0;                     // tokens
  std::vector<Pages> group_sides = {};          // page tables, as in Layout::group_sides
  std::shared_ptr<Transition> transition = {};  // null where all layers have these
  std::shared_ptr<Step> step = {};  // the newest; null for a fork, or once some of its tokens were taken back
  std::uint64_t step_begin = 0;     // position of the step's first token in this sequence

  // What a layer has now.
  const Pages& pages(std::size_t group_side, std::size_t layer) const noexcept {
    return (transition && !transition->done[layer].is_set() ? transition->before : group_sides)[group_side];
  }
};

// Pages before it leave the window: neither the sequence, even without its tail, nor a query that may still come sees
// them.
std::uint64_t first_page_of(const PageRule& rule, std::uint64_t length, std::uint64_t first_query) noexcept;

// Whether settling would change the sequence if queries from position `first_query` on may still be attended with. What
// is sealed at a pace counts if asked for: the newest page that is due, of group sides that do so.
bool is_due(std::span<const GroupSide> group_sides, const SequenceState& sequence, std::uint64_t first_query,
            bool also_at_a_pace = true) noexcept;

// One use for every page of the sequence.
std::vector<PageUse> uses_of(const SequenceState& sequence);

}  // namespace rota::cache
