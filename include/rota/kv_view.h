#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rota/export.h"
#include "rota/result.h"
#include "rota/token_run.h"
#include "rota/view.h"

namespace rota::inline ROTA_ABI {

// Where the keys, or the values, of one sequence are. Logical page p holds the positions from p * page tokens on.
struct KvPages {
  std::uint64_t first_page = 0;    // earlier pages have left the window
  std::uint64_t sealed_pages = 0;  // logical pages before this one are sealed, the others dense

  // The physical page of each logical page from first_page on: in KvSideView::sealed while it is before sealed_pages,
  // else in KvSideView::dense.
  std::vector<std::uint32_t> page_table = {};

  std::optional<std::uint32_t> sinks = {};  // page of KvSideView::sinks, once the first page is sealed
  std::optional<std::uint64_t> ring =
      {};  // slots: position p is in slot p mod ring; then all pages are dense, and none has left

  friend bool operator==(const KvPages&, const KvPages&) = default;
};

// The keys, or the values, of one layer, as they are stored.
struct KvSideView {
  SlotView dense;
  std::optional<SealedView> sealed = {};
  std::optional<SlotView> sinks = {};                       // pages of as many slots as there are sinks
  std::vector<std::shared_ptr<const KvPages>> sequences{};  // as in KvView::lengths
};

// One layer of one or more sequences, for attend(). A view of a cache holds until one of its sequences is closed, or
// until the fence of the next call that changes the cache, which may settle these sequences, too. Whatever uses the
// view must be submitted before.
struct KvView {
  KvSideView k, v;
  std::vector<std::uint64_t> lengths = {};   // tokens of each sequence
  std::optional<std::uint64_t> window = {};  // newest keys that a token sees, including its own; none: all

  // Keys and values that store() wrote into the caller's memory. Each run is a whole sequence, from position 0 on.
  static KvView of_slots(const SlotView& k, const SlotView& v, std::span<const TokenRun> sequences) {
    KvView view{.k = {.dense = k}, .v = {.dense = v}};
    for (const TokenRun& sequence : sequences) {
      auto pages = std::make_shared<KvPages>();
      pages->page_table.assign(sequence.page_table.begin(), sequence.page_table.end());
      if (sequence.page_table.empty()) pages->page_table.push_back(0);
      pages->ring = sequence.capacity;
      // A length beyond 2^64 - 1 becomes that, and attend() refuses it.
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - sequence.position;
      view.lengths.push_back(sequence.position + std::min<std::uint64_t>(sequence.tokens, room));
      view.k.sequences.push_back(pages);
      view.v.sequences.push_back(std::move(pages));
    }
    return view;
  }
};

}  // namespace rota::inline ROTA_ABI
