#include "cache/group_side_memory.h"

#include <algorithm>

#include "core/check.h"
#include "core/extent.h"
#include "ops/seal/seal.h"
#include "runtime/command.h"

namespace rota::cache {
namespace {

// Bytes of one layer in the largest pool.
std::uint64_t layer_bytes(const GroupSide& group_side) {
  const KvSideMemory& memory = group_side.memory;
  return std::max({memory.sealed.bytes(), memory.dense.bytes(), memory.sinks.bytes()}) / group_side.layers;
}

Result<std::uint64_t> layers_per_slab(const Device& device, const GroupSide& group_side) {
  const Limits& limits = device.info().limits;
  // A binding may begin up to an alignment before the view's first byte.
  const std::uint64_t most_bytes = std::min(limits.max_buffer_bytes, limits.max_binding_bytes) -
                                   std::min(limits.max_binding_bytes, runtime::kBindingAlignment);
  const std::uint64_t bytes = layer_bytes(group_side);
  if (bytes > most_bytes) {
    return Error{Errc::unsupported,
                 core::text("KvCache::create: {} take {} bytes for each layer; {} can address {} at once; "
                            "lower max_tokens or use fewer bits",
                            group_side.name(), bytes, device.info().id, most_bytes)};
  }
  std::uint64_t layers = std::min(group_side.layers, most_bytes / std::max<std::uint64_t>(bytes, 1));
  if (group_side.format) {
    const std::uint64_t most_heads = ops::most_sealed_heads(*group_side.format);
    if (group_side.heads > most_heads) {
      return core::refuse({"KvCache::create", {"groups", group_side.group, "kv_heads"}}, group_side.heads,
                          "at most {} where pages are sealed", most_heads);
    }
    layers = std::min(layers, most_heads / group_side.heads);
  }
  return layers;
}

}  // namespace

std::uint64_t Moves::copied_slots() const noexcept {
  std::uint64_t slots = 0;
  for (const auto& list : {std::span(to_sinks), std::span(from_sinks), std::span(copies)}) {
    for (const ops::SlotCopy& move : list) slots += move.tokens;
  }
  return slots;
}

Result<GroupSideMemory> GroupSideMemory::allocate(Device& device, const GroupSide& group_side) {
  auto layers = layers_per_slab(device, group_side);
  if (!layers) return layers.error();
  GroupSideMemory memory(group_side);
  memory.slab_layers_ = *layers;
  for (std::uint64_t first = 0; first < group_side.layers; first += *layers) {
    Slab slab{.layers = std::min(*layers, group_side.layers - first)};
    struct Pool {
      KvPoolSize size;
      Buffer& buffer;
    };
    for (const Pool& pool : {Pool{group_side.memory.sealed, slab.sealed}, Pool{group_side.memory.dense, slab.dense},
                             Pool{group_side.memory.sinks, slab.sinks}}) {
      if (pool.size.bytes() == 0) continue;
      auto buffer = device.allocate(pool.size.bytes() / group_side.layers * slab.layers);
      if (!buffer) return buffer.error();
      pool.buffer = std::move(buffer).value();
    }
    memory.slabs_.push_back(std::move(slab));
  }
  return memory;
}

std::uint64_t GroupSideMemory::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Slab& slab : slabs_) sum += slab.sealed.size_bytes() + slab.dense.size_bytes() + slab.sinks.size_bytes();
  return sum;
}

// All layers of a slab, as heads of one view.
SlotView GroupSideMemory::slots(const Buffer& buffer, std::uint64_t page_slots, std::uint64_t layers) const {
  const std::uint64_t heads = layers * group_side_.heads;
  const std::uint64_t page_bytes = page_slots * heads * group_side_.dim * info(group_side_.dense).bytes;
  return SlotView::head_major(
      buffer, group_side_.dense,
      {.pages = buffer.size_bytes() / page_bytes, .page_slots = page_slots, .heads = heads, .dim = group_side_.dim});
}

SealedView GroupSideMemory::sealed(const Slab& slab, const PageFormat& format) const {
  return SealedView::packed(slab.sealed, format,
                            {.pages = group_side_.memory.sealed.pages, .heads = slab.layers * group_side_.heads});
}

void GroupSideMemory::record(Encoder& encoder, const Moves& moves, const Counter& non_finite) const {
  for (const Slab& slab : slabs_) {
    const SlotView dense = slots(slab.dense, group_side_.rule.page, slab.layers);
    if (!moves.to_sinks.empty()) {
      const SlotView sinks = slots(slab.sinks, group_side_.rule.sinks, slab.layers);
      ops::copy_slots(encoder, {.from = dense, .to = sinks, .copies = moves.to_sinks});
    }
    if (group_side_.format && !moves.seals.empty()) {
      const SealedView pages = sealed(slab, *group_side_.format);
      seal(encoder, {.from = dense, .to = pages, .pages = moves.seals, .non_finite = non_finite});
    }
    if (group_side_.format && !moves.unseals.empty()) {
      unseal(encoder, {.from = sealed(slab, *group_side_.format), .to = dense, .pages = moves.unseals});
    }
    if (!moves.from_sinks.empty()) {
      const SlotView sinks = slots(slab.sinks, group_side_.rule.sinks, slab.layers);
      ops::copy_slots(encoder, {.from = sinks, .to = dense, .copies = moves.from_sinks});
    }
    ops::copy_slots(encoder, {.from = dense, .to = dense, .copies = moves.copies});
  }
}

KvSideView GroupSideMemory::view(std::size_t layer) const {
  const Slab& slab = slabs_[layer / slab_layers_];
  const std::uint64_t head = layer % slab_layers_ * group_side_.heads;
  const auto of_layer = [&](SlotView view) {
    view.offset += head * view.head_stride;
    view.shape.heads = group_side_.heads;
    return view;
  };
  KvSideView view{.dense = of_layer(slots(slab.dense, group_side_.rule.page, slab.layers))};
  if (group_side_.format && slab.sealed.size_bytes() > 0) {
    SealedView pages = sealed(slab, *group_side_.format);
    pages.offset_bytes += head * pages.head_stride_bytes;
    pages.shape.heads = group_side_.heads;
    view.sealed = std::move(pages);
  }
  if (slab.sinks.size_bytes() > 0) view.sinks = of_layer(slots(slab.sinks, group_side_.rule.sinks, slab.layers));
  return view;
}

}  // namespace rota::cache
