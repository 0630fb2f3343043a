#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "rota/token_run.h"

// position: index in the text, never wraps. slot: place in a ring or page. page: what a table
// names. token: index within the tensor at hand.

namespace rota::core {

constexpr std::uint64_t slot_of(std::uint64_t position, std::uint64_t capacity) { return position % capacity; }

struct PageSlot {
  std::uint64_t page, slot;

  friend constexpr bool operator==(const PageSlot&, const PageSlot&) = default;
};

constexpr PageSlot locate(std::uint64_t slot, std::uint64_t page_slots, std::span<const std::uint32_t> table) {
  const std::uint64_t page = slot / page_slots;
  return {table.empty() ? page : table[page], slot % page_slots};
}

// How many of the oldest tokens a ring of `capacity` slots cannot keep.
constexpr std::uint64_t tokens_dropped(std::uint64_t tokens, std::uint64_t capacity) {
  return tokens > capacity ? tokens - capacity : 0;
}

// Consecutive tokens in consecutive slots of one page.
struct Stretch {
  std::uint64_t token;
  PageSlot at;
  std::uint64_t count;

  friend constexpr bool operator==(const Stretch&, const Stretch&) = default;
};

// Calls visit(Stretch) for the tokens of `run` that stay, in order; `first_token` is the run's
// place in the tensor. Preconditions: capacity and page_slots > 0, and the table covers the capacity.
template <class Visit>
constexpr void for_each_stretch(const TokenRun& run, std::uint64_t first_token, std::uint64_t page_slots,
                                Visit&& visit) {
  const std::uint64_t capacity = run.capacity;
  for (std::uint64_t done = tokens_dropped(run.tokens, capacity); done < run.tokens;) {
    const std::uint64_t slot = slot_of(run.position + done, capacity);
    const PageSlot at = locate(slot, page_slots, run.page_table);
    const std::uint64_t count = std::min({run.tokens - done, capacity - slot, page_slots - at.slot});
    visit(Stretch{first_token + done, at, count});
    done += count;
  }
}

}  // namespace rota::core
