#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/group_side_memory.h"
#include "cache/layout.h"
#include "cache/page_pool.h"
#include "cache/page_use.h"
#include "runtime/backend.h"

namespace rota::cache {

// Which pages of one group side are in use.
struct GroupSidePools {
  GroupSidePools(const KvSideMemory& memory, PagePool::Memory of)
      : pools{PagePool(memory.sealed.pages, of), PagePool(memory.dense.pages, of), PagePool(memory.sinks.pages, of),
              PagePool(memory.step.pages, of)} {}

  PagePool& of(PoolKind kind) noexcept { return pools[static_cast<std::size_t>(kind)]; }
  const PagePool& of(PoolKind kind) const noexcept { return pools[static_cast<std::size_t>(kind)]; }

  std::array<PagePool, kPoolKinds> pools;
};

// All pages of a cache, and their memory, which follows use where it is sparse:
//
//   take     pages are committed before a command can name them, with some more that will be wanted next
//   release  pages keep their memory for a while, so that a step finds what the one before it left
//   tend     what has been free for a while is given back
//
// Pages do not move: a pool is one range of addresses for as many pages as it may ever have.
class PagePools {
 public:
  PagePools(runtime::Backend& backend, std::span<const GroupSide> group_sides, std::span<const GroupSideMemory> memory);

  GroupSidePools& operator[](std::size_t group_side) noexcept { return pools_[group_side]; }
  const GroupSidePools& operator[](std::size_t group_side) const noexcept { return pools_[group_side]; }
  std::size_t size() const noexcept { return pools_.size(); }

  // Ends the uses. Precondition: no command that is not yet submitted can touch the pages.
  void release(std::span<const PageUse> uses) noexcept;

  // Puts memory behind pages that were taken, or fails with out_of_pages.
  Status commit(std::span<const PageUse> uses);

  // Keeps memory for as many pages as these group sides have, or none, or fails with out_of_pages. Precondition: no
  // more than the pools have.
  Status reserve(std::span<const GroupSide> sizes);

  // To be called before each change of the cache.
  void tend();

  // Gives back what is free, but for what a pool will want next, if it was free at the last look, and if all that was
  // submitted before that look has ended.
  enum class Spare : std::uint8_t { some, none };
  void look(Spare spare);
  std::uint64_t last_look() const noexcept { return last_look_; }  // the newest submission then

 private:
  // Neighbours in one pool.
  struct Pages {
    std::size_t group_side;
    PoolKind kind;
    std::uint64_t begin, end;

    bool is_of_pool(const Pages& other) const noexcept { return group_side == other.group_side && kind == other.kind; }
    bool is_before(const Pages& other) const noexcept { return is_of_pool(other) && end == other.begin; }
  };
  // Lists of these rise, and each pool's follow each other.

  PagePool& pool_of(const Pages& pages) noexcept { return pools_[pages.group_side].of(pages.kind); }
  const PagePool& pool_of(const Pages& pages) const noexcept { return pools_[pages.group_side].of(pages.kind); }
  static void add(std::vector<Pages>& to, const Pages& page);
  std::vector<Pages> missing(std::span<const Pages> wanted) const;
  std::vector<Pages> with_more(std::span<const Pages> runs) const;
  std::vector<Pages> idle(Spare spare);
  std::vector<runtime::SparseRanges> ranges_of(std::span<const Pages> pages) const;
  enum class Ahead : std::uint8_t { no, yes };
  Status commit_wanted(std::span<const Pages> wanted, Ahead ahead);
  Status try_commit(std::span<const Pages> pages);
  void decommit(std::span<const Pages> pages);
  void mark(std::span<const Pages> pages, bool committed) noexcept;
  std::uint64_t newest_ticket() const noexcept;

  runtime::Backend& backend_;
  std::span<const GroupSide> group_sides_;
  std::span<const GroupSideMemory> memory_;  // of each group side
  std::vector<GroupSidePools> pools_;
  bool is_sparse_ = false;
  std::uint64_t changes_ = 0;  // since tend() has looked
  std::uint64_t last_look_ = 0;
};

}  // namespace rota::cache
