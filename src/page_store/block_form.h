#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "rota/kv_saved.h"
#include "rota/kv_spec.h"
#include "rota/store.h"

// How a cache's pages are cut into blocks, and blocks into objects:
//
//   tokens        0        128       256       384          a block has whole pages of every group
//   pages         [ g0 k v ][ g0 k v ][ g0 k v ]            groups without a window, and sinks that are kept
//   window        [ g1 k v ][ g1 k v ][ g1 k v ]            groups with one: at a prefix' end, as far as it sees
//
// An object's payload has the parts of a saved sequence (docs/saved-sequences.md) with their checksums, and 0 for their
// numbers, so that a block has the same bytes whoever stored it.

namespace rota::page_store {

// Where a part is in its block.
struct PartPlace {
  StoredPart object = StoredPart::pages;
  std::uint64_t offset = 0, bytes = 0;
};

class BlockForm {
 public:
  static Result<BlockForm> of(std::span<const KvGroup> groups);

  std::uint64_t tokens() const noexcept { return tokens_; }  // of a block
  bool has_windows() const noexcept { return has_windows_; }

  // Bytes of a block's pages or window.
  std::uint64_t payload_bytes(std::uint64_t block, StoredPart object) const noexcept {
    return sizes_[block == 0 ? 0 : 1][static_cast<std::size_t>(object)];
  }

  // The first block of which a prefix of so many blocks needs the window.
  std::uint64_t first_window_block(std::uint64_t blocks) const noexcept;

  // A saved sequence of the blocks [begin, end), of which groups with a window have what the newest token sees.
  Result<KvSavedLayout> saved(std::uint64_t begin, std::uint64_t end) const;

  std::uint64_t block_of(const KvSavedPart& part) const noexcept;
  PartPlace place_of(const KvSavedPart& part) const;

 private:
  // Kind, group, side, and page in the block.
  using PartId = std::tuple<KvSavedPart::Kind, std::size_t, KvSide, std::uint64_t>;

  enum class Pages : std::uint8_t { all, seen };  // of a group with a window: by the newest token
  Result<KvSavedLayout> laid_out(std::uint64_t begin, std::uint64_t end, Pages pages) const;
  bool is_window(const KvSavedPart& part) const noexcept;
  PartId id_of(const KvSavedPart& part) const noexcept;
  Status lay_out(std::uint64_t block);

  std::vector<KvGroup> groups_;
  std::uint64_t tokens_ = 0;
  bool has_windows_ = false;
  // Of block 0, which has the sinks, and of any other.
  std::array<std::map<PartId, PartPlace>, 2> places_;
  std::array<std::array<std::uint64_t, 2>, 2> sizes_ = {};
};

}  // namespace rota::page_store
