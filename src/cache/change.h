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

struct GroupSidePools {
  explicit GroupSidePools(const KvSideMemory& memory)
      : pools{PagePool(memory.sealed.pages), PagePool(memory.dense.pages), PagePool(memory.sinks.pages)} {}

  PagePool& of(PoolKind kind) noexcept { return pools[static_cast<std::size_t>(kind)]; }
  const PagePool& of(PoolKind kind) const noexcept { return pools[static_cast<std::size_t>(kind)]; }

  std::array<PagePool, 3> pools;
};

// One sequence's right to one page.
struct PageUse {
  std::size_t group_side;
  PoolKind kind;
  std::uint32_t page;
};

using Pages = std::shared_ptr<const KvPages>;

// A sequence as a value: its pages never change, they are replaced.
struct SequenceState {
  std::uint64_t length = 0;
  std::vector<Pages> group_sides = {};
  std::shared_ptr<Step> step = {};  // the newest; null once it does not matter any more
  std::uint64_t step_begin = 0;     // position of the step's first token
};

// Whether settling would change it, for rows from `first_query` on.
bool is_due(std::span<const GroupSide> group_sides, const SequenceState& sequence, std::uint64_t first_query) noexcept;

void release(std::vector<GroupSidePools>& pools, std::span<const PageUse> uses) noexcept;

// Every page that a sequence uses.
std::vector<PageUse> uses_of(const SequenceState& sequence);

// Works out what becomes of sequences, takes the pages for it, and collects what must be moved. Unless it is kept, all
// pages that it took go back: nothing has happened.
class Change {
 public:
  Change(std::span<const GroupSide> group_sides, std::vector<GroupSidePools>& pools);
  ~Change();

  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // Each fails with out_of_pages only, but for the last two, which may find a window's pages gone. What is due is
  // sealed, or leaves unless a row from `first_query` on sees it.
  Result<SequenceState> settled(const SequenceState& sequence, std::uint64_t first_query);
  Result<SequenceState> extended(const SequenceState& settled, std::uint64_t tokens);
  Result<SequenceState> forked(const SequenceState& settled);
  Result<SequenceState> truncated(const SequenceState& sequence, std::uint64_t length,
                                  std::uint64_t first_query);                      // seals only what stays
  Result<SequenceState> cut(const SequenceState& sequence, std::uint64_t length);  // the same without settling

  void merge(Change&& other);

  // Uses of pages that were added, and those that end when the change cannot be undone any more.
  const std::vector<PageUse>& taken() const noexcept { return taken_; }
  const std::vector<PageUse>& given() const noexcept { return given_; }
  const std::vector<Moves>& moves() const noexcept { return moves_; }

  void keep() noexcept { taken_.clear(); }

  // Whether something failed for want of pages.
  bool lacks_pages() const noexcept { return lacks_pages_; }

 private:
  Result<std::uint32_t> take(std::size_t group_side, PoolKind kind);
  void give(std::size_t group_side, PoolKind kind, std::uint32_t page) { given_.push_back({group_side, kind, page}); }
  void give_sinks(std::size_t group_side, KvPages& pages);

  struct Due {
    std::uint64_t length;       // of the sequence
    std::uint64_t first_query;  // that may still be attended to
    std::uint64_t end;          // pages from it on are left as they are
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
  std::vector<Moves> moves_;  // one per group_side
  bool lacks_pages_ = false;
};

}  // namespace rota::cache
