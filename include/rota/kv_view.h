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

// Where one sequence's keys, or its values, lie. Page p holds the positions from p * page on.
struct KvPages {
  std::uint64_t first_page = 0;    // earlier ones have left the window
  std::uint64_t sealed_pages = 0;  // pages below it are sealed, the others dense
  std::vector<std::uint32_t> page_table =
      {};                                   // of first_page and on: in the sealed pages of the view, then in the dense
  std::optional<std::uint32_t> sinks = {};  // where the first tokens are dense once their page is sealed
  std::optional<std::uint64_t> ring = {};   // slots: position p lies in slot p mod ring. All dense, no page has left

  friend bool operator==(const KvPages&, const KvPages&) = default;
};

// Keys, or values, of one layer, as they are stored.
struct KvSideView {
  SlotView dense;
  std::optional<SealedView> sealed = {};
  std::optional<SlotView> sinks = {};                       // pages of as many slots as there are sinks
  std::vector<std::shared_ptr<const KvPages>> sequences{};  // in the order of the view's
};

// One layer of one sequence or many, for attention. A cache's holds until the fence of the next call that changes the
// cache, which may settle these sequences, too, or until one of them is closed. What uses it is submitted before that.
struct KvView {
  KvSideView k, v;
  std::vector<std::uint64_t> lengths = {};  // tokens of each sequence
  std::optional<std::uint64_t> window = {};

  // Keys and values that store() wrote into memory of the caller's own: each run is a whole sequence, from position 0
  // on.
  static KvView of_slots(const SlotView& k, const SlotView& v, std::span<const TokenRun> sequences) {
    KvView view{.k = {.dense = k}, .v = {.dense = v}};
    for (const TokenRun& sequence : sequences) {
      auto pages = std::make_shared<KvPages>();
      pages->page_table.assign(sequence.page_table.begin(), sequence.page_table.end());
      if (sequence.page_table.empty()) pages->page_table.push_back(0);
      pages->ring = sequence.capacity;
      // Beyond 2^64 it stays there, where attend() refuses it.
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - sequence.position;
      view.lengths.push_back(sequence.position + std::min<std::uint64_t>(sequence.tokens, room));
      view.k.sequences.push_back(pages);
      view.v.sequences.push_back(std::move(pages));
    }
    return view;
  }
};

}  // namespace rota::inline ROTA_ABI
