#include "cache/group_side_memory.h"

#include <algorithm>

#include "core/check.h"
#include "core/extent.h"
#include "ops/seal/seal.h"
#include "runtime/command.h"
#include "runtime/engine.h"
#include "runtime/inside.h"

namespace rota::cache {
namespace {

Result<std::uint64_t> layers_per_slab(const Device& device, const GroupSide& group_side) {
  const std::uint64_t most_bytes = GroupSideMemory::most_bytes(device.info().limits);
  const std::uint64_t bytes = group_side.most_layer_bytes();
  if (std::max(bytes, group_side.memory.step.bytes()) > most_bytes) {
    return Error{
        Errc::unsupported,
        core::text("KvCache::create: {} take {} bytes for each layer; {} can address {} at once; "
                   "lower max_tokens or max_step_tokens, or use fewer bits",
                   group_side.name(), std::max(bytes, group_side.memory.step.bytes()), device.info().id, most_bytes)};
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

std::uint64_t slots_of(std::span<const ops::SlotCopy> copies) noexcept {
  std::uint64_t slots = 0;
  for (const ops::SlotCopy& copy : copies) slots += copy.tokens;
  return slots;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::uint64_t Moves::copied_slots() const noexcept {
  return slots_of(sink_copies) + slots_of(to_sinks) + slots_of(from_sinks) + slots_of(copies);
}

std::uint64_t LayerMoves::copied_slots() const noexcept {
  return moves.copied_slots() + slots_of(step_to_sinks) + slots_of(step_copies);
}

bool Moves::empty() const noexcept {
  return sink_copies.empty() && to_sinks.empty() && seals.empty() && unseals.empty() && from_sinks.empty() &&
         copies.empty();
}

void Moves::add(const Moves& other) {
  append(sink_copies, other.sink_copies);
  append(to_sinks, other.to_sinks);
  append(seals, other.seals);
  append(unseals, other.unseals);
  append(from_sinks, other.from_sinks);
  append(copies, other.copies);
}

bool LayerMoves::empty() const noexcept {
  return moves.empty() && step_to_sinks.empty() && step_seals.empty() && step_copies.empty();
}

void LayerMoves::add(const LayerMoves& other) {
  moves.add(other.moves);
  append(step_to_sinks, other.step_to_sinks);
  append(step_seals, other.step_seals);
  append(step_copies, other.step_copies);
}

std::uint64_t GroupSideMemory::most_bytes(const Limits& limits) noexcept {
  // A binding may begin up to an alignment before the view's first byte.
  return std::min(limits.max_buffer_bytes, limits.max_binding_bytes) -
         std::min(limits.max_binding_bytes, runtime::kBindingAlignment);
}

Result<Buffer> GroupSideMemory::make_buffer(Device& device, std::uint64_t bytes) const {
  if (bytes == 0) return Buffer();
  if (kind_ == Kind::allocated) return device.allocate(bytes);
  auto memory = runtime::Inside::of(device)->backend().reserve(bytes);
  if (!memory) return memory.error();
  return runtime::buffer_on(device, std::move(memory).value());
}

Result<GroupSideMemory> GroupSideMemory::make(Device& device, const GroupSide& group_side, Kind kind) {
  auto layers = layers_per_slab(device, group_side);
  if (!layers) return layers.error();
  GroupSideMemory memory(group_side, kind);
  memory.slab_layers_ = *layers;
  for (std::uint64_t first = 0; first < group_side.layers; first += *layers) {
    Slab slab{.layers = std::min(*layers, group_side.layers - first)};
    struct Pool {
      KvPoolSize size;
      Buffer& buffer;
    };
    for (const Pool& pool : {Pool{group_side.memory.sealed, slab.sealed}, Pool{group_side.memory.dense, slab.dense},
                             Pool{group_side.memory.sinks, slab.sinks}}) {
      auto buffer = memory.make_buffer(device, pool.size.bytes() / group_side.layers * slab.layers);
      if (!buffer) return buffer.error();
      pool.buffer = std::move(buffer).value();
    }
    memory.slabs_.push_back(std::move(slab));
  }
  auto step = memory.make_buffer(device, group_side.memory.step.bytes());
  if (!step) return step.error();
  memory.step_ = std::move(step).value();
  return memory;
}

std::uint64_t GroupSideMemory::newest_ticket() const noexcept {
  std::uint64_t newest = 0;
  const auto look_at = [&](const Buffer& buffer) {
    const auto& state = runtime::Inside::of(buffer);
    if (!state) return;
    const runtime::Memory& memory = *state->memory();
    newest = std::max({newest, memory.last_read_ticket.load(), memory.last_write_ticket.load()});
  };
  for (const Slab& slab : slabs_) {
    for (const Buffer* const pool : {&slab.sealed, &slab.dense, &slab.sinks}) look_at(*pool);
  }
  look_at(step_);
  return newest;
}

Status GroupSideMemory::wait_for_commands() const {
  for (const Slab& slab : slabs_) {
    for (const Buffer* const pool : {&slab.sealed, &slab.dense, &slab.sinks}) {
      const auto& state = runtime::Inside::of(*pool);
      if (!state) continue;
      if (Status status = state->device()->backend().settle(*state->memory(), Access::write); !status) return status;
    }
  }
  return {};
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

// Pools that the group side does not have are empty buffers.
KvSideView GroupSideMemory::view_of(const Slab& slab) const {
  KvSideView view{.dense = slots(slab.dense, group_side_.rule.page, slab.layers)};
  if (group_side_.format && slab.sealed.size_bytes() > 0) view.sealed = sealed(slab, *group_side_.format);
  if (slab.sinks.size_bytes() > 0) view.sinks = slots(slab.sinks, group_side_.rule.sinks, slab.layers);
  return view;
}

void GroupSideMemory::record(Encoder& encoder, const KvSideView& view, const Moves& moves, const Counter& non_finite) {
  if (view.sinks) {
    ops::copy_slots(encoder, {.from = *view.sinks, .to = *view.sinks, .copies = moves.sink_copies});
    ops::copy_slots(encoder, {.from = view.dense, .to = *view.sinks, .copies = moves.to_sinks});
  }
  if (view.sealed && !moves.seals.empty()) {
    seal(encoder, {.from = view.dense, .to = *view.sealed, .pages = moves.seals, .non_finite = non_finite});
  }
  if (view.sealed && !moves.unseals.empty()) {
    unseal(encoder, {.from = *view.sealed, .to = view.dense, .pages = moves.unseals});
  }
  if (view.sinks) ops::copy_slots(encoder, {.from = *view.sinks, .to = view.dense, .copies = moves.from_sinks});
  ops::copy_slots(encoder, {.from = view.dense, .to = view.dense, .copies = moves.copies});
}

void GroupSideMemory::record(Encoder& encoder, const Moves& moves, const Counter& non_finite) const {
  if (moves.empty()) return;
  for (const Slab& slab : slabs_) record(encoder, view_of(slab), moves, non_finite);
}

void GroupSideMemory::record(Encoder& encoder, std::size_t layer, const LayerMoves& moves,
                             const Counter& non_finite) const {
  if (moves.empty()) return;
  const KvSideView of_layer = view(layer);
  record(encoder, of_layer, moves.moves, non_finite);
  if (!of_layer.step) return;
  const SlotView& step = *of_layer.step;
  if (of_layer.sinks) ops::copy_slots(encoder, {.from = step, .to = *of_layer.sinks, .copies = moves.step_to_sinks});
  if (of_layer.sealed && !moves.step_seals.empty()) {
    seal(encoder, {.from = step, .to = *of_layer.sealed, .pages = moves.step_seals, .non_finite = non_finite});
  }
  ops::copy_slots(encoder, {.from = step, .to = of_layer.dense, .copies = moves.step_copies});
}

KvSideView GroupSideMemory::view(std::size_t layer) const {
  KvSideView view = view_of(slabs_[layer / slab_layers_]);
  const std::uint64_t head = layer % slab_layers_ * group_side_.heads;
  const auto only_layer = [&](SlotView& slots) {
    slots.offset += head * slots.head_stride;
    slots.shape.heads = group_side_.heads;
  };
  only_layer(view.dense);
  if (view.sinks) only_layer(*view.sinks);
  if (view.sealed) {
    view.sealed->offset_bytes += head * view.sealed->head_stride_bytes;
    view.sealed->shape.heads = group_side_.heads;
  }
  if (step_.size_bytes() > 0) view.step = slots(step_, group_side_.rule.page, 1);
  return view;
}

}  // namespace rota::cache
