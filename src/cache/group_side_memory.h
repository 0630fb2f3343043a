#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "cache/page_use.h"
#include "core/extent.h"
#include "ops/store/copy_slots.h"
#include "rota/device.h"
#include "rota/kv_cache.h"
#include "rota/ops.h"
#include "runtime/device_state.h"

namespace rota::cache {

// What a change of a cache moves in one group side, in this order. Physical pages; sinks have pages of their own.
struct Moves {
  std::vector<ops::SlotCopy> sink_copies = {};  // from sinks to sinks
  std::vector<ops::SlotCopy> to_sinks = {};
  std::vector<SealPage> seals = {};
  std::vector<UnsealPage> unseals = {};
  std::vector<ops::SlotCopy> from_sinks = {};
  std::vector<ops::SlotCopy> copies = {};  // from dense to dense

  std::uint64_t copied_slots() const noexcept;
  bool empty() const noexcept;
  void add(const Moves& other);
};

// The same in one layer, when its sequences go over to other pages (Transition); some come from a step's pages.
struct LayerMoves {
  Moves moves = {};
  std::vector<ops::SlotCopy> step_to_sinks = {};
  std::vector<SealPage> step_seals = {};
  std::vector<ops::SlotCopy> step_copies = {};  // to dense pages, which were read before

  bool empty() const noexcept;
  std::uint64_t seals() const noexcept { return moves.seals.size() + step_seals.size(); }
  std::uint64_t copied_slots() const noexcept;
  void add(const LayerMoves& other);
};

// The pages of one group side on a device, [page][layer][head], so that one command moves a page for all layers. Where
// a device cannot address that much at once, layers are divided over several slabs, and a command is one per slab. A
// step's pages are [page][head]: all layers take turns.
class GroupSideMemory {
 public:
  // Allocates all of it; or, sparse, only addresses, and PagePools commits what is used.
  enum class Kind : std::uint8_t { allocated, sparse };
  static Result<GroupSideMemory> make(Device& device, const GroupSide& group_side, Kind kind);
  bool is_sparse() const noexcept { return kind_ == Kind::sparse; }

  // Of one pool, that a device can address at once.
  static std::uint64_t most_bytes(const Limits& limits) noexcept;

  // Of the newest submission that uses a page.
  std::uint64_t newest_ticket() const noexcept;

  // Calls visit(const std::shared_ptr<runtime::Memory>&, bytes of a page) for all memories that pages of a pool are
  // divided over.
  template <class Visit>
  void for_each_memory(PoolKind kind, const Visit& visit) const;

  // In all layers, or in one.
  void record(Encoder& encoder, const Moves& moves, const Counter& non_finite) const;
  void record(Encoder& encoder, std::size_t layer, const LayerMoves& moves, const Counter& non_finite) const;

  // One layer, without sequences. Precondition: layer < GroupSide::layers.
  KvSideView view(std::size_t layer) const;

  // Waits for every earlier submission that uses a page. What only an engine can start is Errc::busy.
  Status wait_for_commands() const;

  static constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 18;

  // A page of a pool, or its first `tokens` where it is dense, in all layers and heads: [layer][head][token][dim], or
  // [layer][head] where it is sealed. Calls visit(Buffer, core::ByteRange) -> Status for what lies together in memory,
  // in pieces that a core's cache holds.
  template <class Visit>
  Status for_each_range(const PageUse& page, std::uint64_t tokens, const Visit& visit) const;

 private:
  struct Slab {
    std::uint64_t layers = 0;
    Buffer sealed, dense, sinks;

    const Buffer& of(PoolKind kind) const noexcept {
      return kind == PoolKind::sealed ? sealed : kind == PoolKind::sinks ? sinks : dense;
    }
  };

  GroupSideMemory(const GroupSide& group_side, Kind kind) : group_side_(group_side), kind_(kind) {}
  Result<Buffer> make_buffer(Device& device, std::uint64_t bytes) const;
  static void record(Encoder& encoder, const KvSideView& view, const Moves& moves, const Counter& non_finite);
  KvSideView view_of(const Slab& slab) const;  // all layers, as heads
  SlotView slots(const Buffer& buffer, std::uint64_t page_slots, std::uint64_t layers) const;
  SealedView sealed(const Slab& slab, const PageFormat& format) const;

  GroupSide group_side_;
  Kind kind_;
  std::uint64_t slab_layers_ = 0;  // in every slab but the last, which may have fewer
  std::vector<Slab> slabs_;
  Buffer step_;
};

template <class Visit>
void GroupSideMemory::for_each_memory(PoolKind kind, const Visit& visit) const {
  const std::uint64_t page_bytes = group_side_.pool(kind).page_bytes;
  if (kind == PoolKind::step) return visit(runtime::Inside::of(step_)->memory(), page_bytes);
  for (const Slab& slab : slabs_) {
    visit(runtime::Inside::of(slab.of(kind))->memory(), page_bytes / group_side_.layers * slab.layers);
  }
}

template <class Visit>
Status GroupSideMemory::for_each_range(const PageUse& page, std::uint64_t tokens, const Visit& visit) const {
  const bool sealed = page.kind == PoolKind::sealed;
  const std::uint64_t slots = page.kind == PoolKind::sinks ? group_side_.rule.sinks : group_side_.rule.page;
  const std::uint64_t slot_bytes = group_side_.dim * info(group_side_.dense).bytes;
  const std::uint64_t head_bytes = sealed ? group_side_.sealed_bytes() : slots * slot_bytes;
  const bool whole = sealed || tokens == slots;
  for (const Slab& slab : slabs_) {
    const Buffer& buffer = slab.of(page.kind);
    const std::uint64_t heads = slab.layers * group_side_.heads;
    const std::uint64_t begin = page.page * heads * head_bytes;
    const std::uint64_t ranges = whole ? 1 : heads;
    const std::uint64_t bytes = whole ? heads * head_bytes : tokens * slot_bytes;
    for (std::uint64_t i = 0; i < ranges; ++i) {
      const std::uint64_t end = begin + i * head_bytes + bytes;
      for (std::uint64_t at = end - bytes; at < end; at += kPieceBytes) {
        if (Status status = visit(buffer, core::ByteRange{at, std::min(at + kPieceBytes, end)}); !status) return status;
      }
    }
  }
  return {};
}

}  // namespace rota::cache
