#pragma once

#include <array>
#include <cstdint>

#include "core/extent.h"
#include "ops/attend/key_range.h"
#include "ops/attend/plan_reader.h"

namespace rota::ops {

// Into the second cache.
inline void prefetch_bytes(const void* from, std::uint64_t bytes) noexcept {
  const auto* const first = static_cast<const std::byte*>(from);
#pragma GCC unroll 8
  for (std::uint64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(first + at, 0, 2);
}

// One head of one sequence.
struct SequenceHead {
  const PlanSequence* sequence;
  std::uint64_t head;

  bool operator==(const SequenceHead&) const = default;
};

// A key block of one head, of which a split may have some keys only.
struct HeadBlock {
  SequenceHead of;
  KeyRange keys;

  std::uint64_t first() const noexcept { return core::round_down(keys.begin, kKeyBlock); }  // whether it has it or not
  bool operator==(const HeadBlock&) const = default;

  // The first of the blocks in which `keys` lie.
  static HeadBlock first_of(const SequenceHead& head, const KeyRange& keys) noexcept {
    return {head, keys.in({0, core::round_down(keys.begin, kKeyBlock) + kKeyBlock})};
  }
};

// The key block that is computed, and the one that is prefetched meanwhile: the split's next, or the next split's
// first.
struct BlockPair {
  HeadBlock now, next;
};

// One side's addresses of both, found by a member of its memory. What was next is not located again when its turn
// comes.
template <class Addresses, auto kLocate>
class PrefetchedBlocks {
 public:
  // Where `first` lies, as what is next, if it was not that before: nothing has prefetched it then. Otherwise null.
  template <class Memory>
  const Addresses* begin(const Memory& memory, const HeadBlock& first) noexcept {
    if (located_ == first) return nullptr;
    (memory.*kLocate)(first, addresses_[1 - now_]);
    located_ = first;
    return &next();
  }

  template <class Memory>
  void advance(const Memory& memory, const BlockPair& blocks) noexcept {
    now_ = 1 - now_;
    if (located_ != blocks.now) (memory.*kLocate)(blocks.now, addresses_[now_]);
    (memory.*kLocate)(blocks.next, addresses_[1 - now_]);
    located_ = blocks.next;
  }

  const Addresses& now() const noexcept { return addresses_[now_]; }
  const Addresses& next() const noexcept { return addresses_[1 - now_]; }

 private:
  std::array<Addresses, 2> addresses_;
  HeadBlock located_{};  // as next
  std::uint32_t now_ = 0;
};

}  // namespace rota::ops
