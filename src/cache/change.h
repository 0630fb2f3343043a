#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/layout.h"
#include "cache/page_pool.h"
#include "cache/track_memory.h"
#include "rota/kv_cache.h"

namespace rota::cache {

enum class PoolKind : std::uint8_t { sealed, dense, sinks };

struct TrackPools {
  explicit TrackPools(const KvSideMemory& memory)
      : pools{PagePool(memory.sealed.pages), PagePool(memory.dense.pages), PagePool(memory.sinks.pages)} {}

  PagePool& of(PoolKind kind) noexcept { return pools[static_cast<std::size_t>(kind)]; }
  const PagePool& of(PoolKind kind) const noexcept { return pools[static_cast<std::size_t>(kind)]; }

  std::array<PagePool, 3> pools;
};

// One text's right to one page.
struct PageUse {
  std::size_t track;
  PoolKind kind;
  std::uint32_t page;
};

using Pages = std::shared_ptr<const KvPages>;

// A text as a value: its pages never change, they are replaced.
struct Text {
  std::uint64_t length = 0;
  std::vector<Pages> tracks = {};
  std::shared_ptr<Step> step = {};  // the newest; null once it does not matter any more
  std::uint64_t step_begin = 0;     // position of the step's first token
};

// Whether settling would change it, for rows from `first_row` on.
bool is_due(std::span<const Track> tracks, const Text& text, std::uint64_t first_row) noexcept;

void release(std::vector<TrackPools>& pools, std::span<const PageUse> uses) noexcept;

// Every page that a text uses.
std::vector<PageUse> uses_of(const Text& text);

// Works out what becomes of texts, takes the pages for it, and collects what must be moved. Unless it is kept, all
// pages that it took go back: nothing has happened.
class Change {
 public:
  Change(std::span<const Track> tracks, std::vector<TrackPools>& pools);
  ~Change();

  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // Each fails with out_of_pages only, but for the last two, which may find a window's pages gone. What is due is
  // sealed, or leaves unless a row from `first_row` on sees it.
  Result<Text> settled(const Text& text, std::uint64_t first_row);
  Result<Text> extended(const Text& settled, std::uint64_t tokens);
  Result<Text> forked(const Text& settled);
  Result<Text> truncated(const Text& text, std::uint64_t length, std::uint64_t first_row);  // seals only what stays
  Result<Text> cut(const Text& text, std::uint64_t length);                                 // the same without settling

  void merge(Change&& other);

  // Uses of pages that were added, and those that end when the change cannot be undone any more.
  const std::vector<PageUse>& taken() const noexcept { return taken_; }
  const std::vector<PageUse>& given() const noexcept { return given_; }
  const std::vector<Moves>& moves() const noexcept { return moves_; }

  void keep() noexcept { taken_.clear(); }

  // Whether something failed for want of pages.
  bool lacks_pages() const noexcept { return lacks_pages_; }

 private:
  Result<std::uint32_t> take(std::size_t track, PoolKind kind);
  void give(std::size_t track, PoolKind kind, std::uint32_t page) { given_.push_back({track, kind, page}); }
  void give_sinks(std::size_t track, KvPages& pages);

  struct Due {
    std::uint64_t length;     // of the text
    std::uint64_t first_row;  // that may still be attended to
    std::uint64_t end;        // pages from it on are left as they are
  };
  Result<Pages> settle(std::size_t track, const Pages& pages, const Due& due);
  Result<Pages> extend(std::size_t track, const Pages& pages, std::uint64_t length);
  Result<Pages> truncate(std::size_t track, const Pages& pages, std::uint64_t length);
  Result<Pages> fork(std::size_t track, const Pages& pages, std::uint64_t length);

  template <class Each>
  Result<Text> each_track(const Text& text, std::uint64_t length, const Each& each);

  std::span<const Track> tracks_;
  std::vector<TrackPools>& pools_;
  std::vector<PageUse> taken_, given_;
  std::vector<Moves> moves_;  // one per track
  bool lacks_pages_ = false;
};

}  // namespace rota::cache
