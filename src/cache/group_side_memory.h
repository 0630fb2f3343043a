#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "ops/store/copy_slots.h"
#include "rota/device.h"
#include "rota/kv_cache.h"
#include "rota/ops.h"

namespace rota::cache {

// What a change of a cache moves in one group side, in this order. Physical pages; sinks have pages of their own.
struct Moves {
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
  static Result<GroupSideMemory> allocate(Device& device, const GroupSide& group_side);

  // In all layers, or in one.
  void record(Encoder& encoder, const Moves& moves, const Counter& non_finite) const;
  void record(Encoder& encoder, std::size_t layer, const LayerMoves& moves, const Counter& non_finite) const;

  // One layer, without sequences. Precondition: layer < GroupSide::layers.
  KvSideView view(std::size_t layer) const;

  std::uint64_t bytes() const noexcept;

 private:
  struct Slab {
    std::uint64_t layers = 0;
    Buffer sealed, dense, sinks;
  };

  explicit GroupSideMemory(const GroupSide& group_side) : group_side_(group_side) {}
  static void record(Encoder& encoder, const KvSideView& view, const Moves& moves, const Counter& non_finite);
  KvSideView view_of(const Slab& slab) const;  // all layers, as heads
  SlotView slots(const Buffer& buffer, std::uint64_t page_slots, std::uint64_t layers) const;
  SealedView sealed(const Slab& slab, const PageFormat& format) const;

  GroupSide group_side_;
  std::uint64_t slab_layers_ = 0;  // in every slab but the last, which may have fewer
  std::vector<Slab> slabs_;
  Buffer step_;
};

}  // namespace rota::cache
