#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/group_side_memory.h"
#include "cache/layout.h"
#include "cache/page_pool.h"
#include "rota/kv_cache.h"

namespace rota::cache {

enum class PoolKind : std::uint8_t { sealed, dense, sinks };

// Which pages of one group side are in use.
struct GroupSidePools {
  explicit GroupSidePools(const KvSideMemory& memory)
      : pools{PagePool(memory.sealed.pages), PagePool(memory.dense.pages), PagePool(memory.sinks.pages)} {}

  PagePool& of(PoolKind kind) noexcept { return pools[static_cast<std::size_t>(kind)]; }
  const PagePool& of(PoolKind kind) const noexcept { return pools[static_cast<std::size_t>(kind)]; }

  std::array<PagePool, 3> pools;
};

// One sequence's use of one page. It counts in the page's pool from take() or share() to release().
struct PageUse {
  std::size_t group_side;
  PoolKind kind;
  std::uint32_t page;
};

using Pages = std::shared_ptr<const KvPages>;

// A sequence as a value. Page tables are never changed but replaced, so that a copy costs a pointer per group side, and
// views and the state to go back to stay as they were.
struct SequenceState {
  std::uint64_t length = 0;             // tokens
  std::vector<Pages> group_sides = {};  // page tables, as in Layout::group_sides
  std::shared_ptr<Step> step = {};      // the newest; null for a fork, or once some of its tokens were taken back
  std::uint64_t step_begin = 0;         // position of the step's first token in this sequence
};

// Whether settling would change the sequence if queries from position `first_query` on may still be attended with.
bool is_due(std::span<const GroupSide> group_sides, const SequenceState& sequence, std::uint64_t first_query) noexcept;

// Ends the uses. Precondition: no command that is not yet submitted can touch the pages.
void release(std::vector<GroupSidePools>& pools, std::span<const PageUse> uses) noexcept;

// One use for every page of the sequence.
std::vector<PageUse> uses_of(const SequenceState& sequence);

// The planner: computes the new state of sequences, takes pages for it, and lists what commands must move. It changes
// nothing but the pools, and its destructor puts the pages back unless keep() was called.
//
//   taken   uses that are added: they end if the change is undone
//   given   uses that end once the change cannot be undone any more; some may have been added by it
//   moves   what commands do on the device: they write to pages that were taken
//
// A page that is given stays in use until then, so that moves overwrite nothing that an old state or its view reads.
class Change {
 public:
  Change(std::span<const GroupSide> group_sides, std::vector<GroupSidePools>& pools);
  ~Change();

  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // The new state of a sequence. Errors are out_of_pages, and in the last two invalid_argument if pages that the
  // shorter sequence would see have left its window. After an error only lacks_pages() and the destructor are of use.

  // Seals the pages that are due, and drops those that have left the window and that no query from position
  // `first_query` on sees.
  Result<SequenceState> settled(const SequenceState& sequence, std::uint64_t first_query);
  Result<SequenceState> extended(const SequenceState& settled, std::uint64_t tokens);
  Result<SequenceState> forked(const SequenceState& settled);
  // Settles, but seals only pages that stay, and then cuts.
  Result<SequenceState> truncated(const SequenceState& sequence, std::uint64_t length, std::uint64_t first_query);
  Result<SequenceState> cut(const SequenceState& sequence, std::uint64_t length);

  // Adds what the other change does. The pages are this change's from then on.
  void merge(Change&& other);

  const std::vector<PageUse>& taken() const noexcept { return taken_; }
  const std::vector<PageUse>& given() const noexcept { return given_; }
  const std::vector<Moves>& moves() const noexcept { return moves_; }

  // The new states count: pages stay taken.
  void keep() noexcept { taken_.clear(); }

  // Whether a pool had no free page when one was asked for.
  bool lacks_pages() const noexcept { return lacks_pages_; }

 private:
  Result<std::uint32_t> take(std::size_t group_side, PoolKind kind);
  void give(std::size_t group_side, PoolKind kind, std::uint32_t page) { given_.push_back({group_side, kind, page}); }
  void give_sinks(std::size_t group_side, KvPages& pages);

  struct Due {
    std::uint64_t length;       // tokens of the sequence
    std::uint64_t first_query;  // position of the oldest query that may still be attended with
    std::uint64_t end;          // logical page from which on pages are not sealed
  };
  Result<Pages> settle(std::size_t group_side, const Pages& pages, const Due& due);
  Result<Pages> extend(std::size_t group_side, const Pages& pages, std::uint64_t length);
  Result<Pages> truncate(std::size_t group_side, const Pages& pages, std::uint64_t length);
  Result<Pages> fork(std::size_t group_side, const Pages& pages, std::uint64_t length);

  template <class Each>
  Result<SequenceState> each_group_side(const SequenceState& sequence, std::uint64_t length, const Each& each);

  std::span<const GroupSide> group_sides_;
  std::vector<GroupSidePools>& pools_;
  std::vector<PageUse> taken_, given_;
  std::vector<Moves> moves_;  // one per group side
  bool lacks_pages_ = false;
};

}  // namespace rota::cache
