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
};

// The pages of one group side on a device, [page][layer][head], so that one command moves a page for all layers. Where
// a device cannot address that much at once, layers are divided over several slabs, and a command is one per slab.
class GroupSideMemory {
 public:
  static Result<GroupSideMemory> allocate(Device& device, const GroupSide& group_side);

  void record(Encoder& encoder, const Moves& moves, const Counter& non_finite) const;

  // One layer, without sequences. Precondition: layer < GroupSide::layers.
  KvSideView view(std::size_t layer) const;

  std::uint64_t bytes() const noexcept;

 private:
  struct Slab {
    std::uint64_t layers = 0;
    Buffer sealed, dense, sinks;
  };

  explicit GroupSideMemory(const GroupSide& group_side) : group_side_(group_side) {}
  SlotView slots(const Buffer& buffer, std::uint64_t page_slots, std::uint64_t layers) const;
  SealedView sealed(const Slab& slab, const PageFormat& format) const;

  GroupSide group_side_;
  std::uint64_t slab_layers_ = 0;  // in every slab but the last, which may have fewer
  std::vector<Slab> slabs_;
};

}  // namespace rota::cache
