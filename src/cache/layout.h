#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_use.h"
#include "rota/kv_spec.h"

// The pure half of a cache: what a description means, before any device is asked.

namespace rota::cache {

// When pages of a group side are sealed and when they leave. A sequence's length after its steps decides, nothing else.
struct PageRule {
  std::uint64_t page = 128, tail = 128, sinks = 0;  // tokens
  std::optional<std::uint64_t> window = {};         // tokens
  bool seals = false;
  std::uint64_t within = 0;  // tokens while which a page that is due is sealed; 0: at once
  bool keeps_sinks = false;  // beyond the window: they have a page of their own from the first token on

  // No query from `position` on sees a page before this one.
  constexpr std::uint64_t first_seen_page(std::uint64_t position) const noexcept {
    return window && position >= *window ? (position + 1 - *window) / page : 0;
  }

  // Pages before this one may leave: even with the whole tail taken back, the newest token sees none of them.
  constexpr std::uint64_t first_page(std::uint64_t length) const noexcept {
    return length > tail ? first_seen_page(length - tail - 1) : 0;
  }

  // Whether the sinks leave, and with them their page, once pages before `first` have.
  constexpr bool loses_sinks(std::uint64_t first) const noexcept { return first > 0 && !keeps_sinks; }

  // Every token of a page before this one is older than the tail.
  constexpr std::uint64_t sealed_pages(std::uint64_t length) const noexcept {
    return seals && length > tail ? (length - tail) / page : 0;
  }

  constexpr std::uint64_t pages(std::uint64_t tokens) const noexcept { return (tokens + page - 1) / page; }

  // Whether a sequence has few dense pages, however long it is.
  constexpr bool is_bounded() const noexcept { return seals || window; }

  // Dense pages of a sequence with `length` tokens from which nothing is due, and of any such sequence at most.
  constexpr std::uint64_t dense_pages(std::uint64_t length) const noexcept {
    return pages(length) - std::max(first_page(length), sealed_pages(length));
  }
  constexpr std::uint64_t most_dense_pages() const noexcept { return pages(dense_tokens() + page + within); }

  // Whether a step from `length` to `next` tokens needs more dense pages, from `first` on, than the sequence has before
  // it and after it. Where pages are sealed at a pace there is room for one that waits.
  constexpr bool is_long(std::uint64_t first, std::uint64_t length, std::uint64_t next) const noexcept {
    const std::uint64_t room = within > 0 ? most_dense_pages() : 0;
    return pages(next) - first > std::max({pages(length) - first, dense_pages(next), room});
  }

  // Newest tokens that stay dense. Precondition: is_bounded().
  constexpr std::uint64_t dense_tokens() const noexcept { return seals ? tail : tail + window.value_or(0); }

  // Of `layers`, in how many page `sealed` - 1 must be sealed in a sequence of `length` tokens. Precondition: it is
  // due.
  constexpr std::uint64_t layers_at_pace(std::uint64_t layers, std::uint64_t sealed,
                                         std::uint64_t length) const noexcept {
    if (within == 0) return layers;
    const std::uint64_t since = std::min(length - (sealed * page + tail), within);
    return (layers * since + within - 1) / within;
  }
};

inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;  // of a cache, or of a saved sequence
inline constexpr std::uint64_t kMaxGroups = 1024;
// Tokens of a sequence: what rope() takes.
inline constexpr auto kMaxLength = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());

inline constexpr std::size_t kGroupSideCounters = 2;  // u64 each

// Host memory at most: per sequence, per sequence and group side, per sequence and layer, per token of a step, per page
// that was ever used, and per page of a step, which is in two page tables and moves.
inline constexpr std::uint64_t kSequenceHostBytes = 512, kSequenceGroupSideHostBytes = 640,
                               kSequenceLayerHostBytes = 16;
inline constexpr std::uint64_t kStepTokenHostBytes = 16, kPageHostBytes = 32, kStepPageHostBytes = 256;
// And per block of sparse memory that a page touches.
inline constexpr std::uint64_t kBlockHostBytes = 32;

// The keys, or the values, of one group of layers.
struct GroupSide {
  std::size_t group = 0;
  KvSide side = KvSide::keys;
  std::uint64_t layers = 0, heads = 0, dim = 0;
  DType dense = DType::f16;
  std::optional<PageFormat> format = {};
  PageRule rule = {};
  KvSideMemory memory = {};
  bool in_keys = false;  // values that are a part of the keys: no sequence has pages of this side

  std::string name() const;                                                                 // "the keys of groups[0]"
  std::uint64_t sealed_bytes() const noexcept { return format ? page_bytes(*format) : 0; }  // of a page of one head
  std::uint64_t slot_bytes() const noexcept { return layers * layer_slot_bytes(); }
  std::uint64_t layer_slot_bytes() const noexcept { return heads * dim * info(dense).bytes; }

  const KvPoolSize& pool(PoolKind kind) const noexcept {
    switch (kind) {
      case PoolKind::sealed: return memory.sealed;
      case PoolKind::dense: return memory.dense;
      case PoolKind::sinks: return memory.sinks;
      case PoolKind::step: break;
    }
    return memory.step;
  }
  // Of one layer, in the largest pool whose pages hold all layers.
  std::uint64_t most_layer_bytes() const noexcept {
    return std::max({memory.sealed.bytes(), memory.dense.bytes(), memory.sinks.bytes()}) / layers;
  }
};

struct Layer {
  std::uint32_t number = 0;          // the model's own
  std::size_t group = 0, index = 0;  // `index` counts the layers of the group
};

struct SharedLayer {
  std::uint32_t number = 0;  // the model's own
  std::size_t from = 0;      // in Layout::layers
};

struct Layout {
  std::vector<GroupSide> group_sides = {};  // keys and values of the first group, of the second, ...
  std::vector<Layer> layers = {};           // numbers rise
  std::vector<SharedLayer> shared = {};     // likewise
  LayerOrder order = LayerOrder::in_turn;
  KvMemory memory = {};

  std::size_t groups() const noexcept { return group_sides.size() / 2; }
};

constexpr std::size_t group_side_of(std::size_t group, KvSide side) noexcept {
  return 2 * group + (side == KvSide::keys ? 0 : 1);
}

// What a cache without limits of its own may take of a device.
struct Room {
  std::uint64_t bytes = 0;
  std::uint64_t layer_bytes = std::numeric_limits<std::uint64_t>::max();  // of one pool
};

// Refuses every bad description, or computes what to allocate. A description without limits fills the room, or is
// refused if there is none.
Result<Layout> lay_out(const KvCacheSpec& spec, const std::optional<Room>& room = {});

// The same for so many tokens, instead of the limits. Precondition: `layout` is of the description.
Result<Layout> lay_out(const Layout& layout, const KvCacheSpec& spec, std::uint64_t tokens);

}  // namespace rota::cache
