#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

// A list that copies share, so that a view of many sequences costs a few pointers for each layer.
template <class T>
class SharedList {
 public:
  SharedList() noexcept = default;
  SharedList(std::vector<T> items) : items_(std::make_shared<std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  const std::vector<T>& items() const noexcept {
    static const std::vector<T> none;
    return items_ ? *items_ : none;
  }
  std::size_t size() const noexcept { return items().size(); }
  bool empty() const noexcept { return items().empty(); }
  const T& operator[](std::size_t index) const noexcept { return items()[index]; }
  const T& front() const noexcept { return items().front(); }
  const T& back() const noexcept { return items().back(); }
  auto begin() const noexcept { return items().begin(); }
  auto end() const noexcept { return items().end(); }

  // The items, to change until the list is copied next. Earlier copies keep theirs.
  std::vector<T>& edit() {
    if (!items_ || items_.use_count() > 1) items_ = std::make_shared<std::vector<T>>(items());
    return *items_;
  }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.items_ == b.items_ || a.items() == b.items();
  }

 private:
  std::shared_ptr<std::vector<T>> items_;
};

// Where the keys, or the values, of one sequence are. Logical page p holds the positions from p * page tokens on. Pages
// that an encoder has seen do not change while it records: other pages are another object.
struct KvPages {
  std::uint64_t first_page = 0;    // earlier pages have left the window
  std::uint64_t sealed_pages = 0;  // logical pages before this one are sealed, the others dense

  // The physical page of each logical page from first_page on: in KvSideView::sealed while it is before sealed_pages,
  // in KvSideView::step from step_page on, else in KvSideView::dense.
  std::vector<std::uint32_t> page_table = {};

  // The page of KvSideView::sinks: once the first page is sealed, or from the first token on (KvGroup::keep_sinks).
  std::optional<std::uint32_t> sinks = {};
  std::optional<std::uint64_t> ring =
      {};  // slots: position p is in slot p mod ring; then all pages are dense, and none has left
  std::optional<std::uint64_t> step_page = {};  // at least sealed_pages; none: all of the table is before it

  friend bool operator==(const KvPages&, const KvPages&) = default;
};

// The keys, or the values, of one layer, as they are stored.
struct KvSideView {
  SlotView dense;
  std::optional<SealedView> sealed = {};
  std::optional<SlotView> sinks = {};                      // pages of as many slots as there are sinks
  std::optional<SlotView> step = {};                       // dense as well: pages that only a step's layer uses
  SharedList<std::shared_ptr<const KvPages>> sequences{};  // as in KvView::lengths
};

// One layer of one or more sequences, for attend(). A view of a cache holds until one of its sequences is closed, or
// until the next call that changes the cache, which may settle these sequences, too: whatever uses the view must be
// submitted before that call's encoder, or recorded there before the call. In a long step (LayerOrder::in_turn),
// appending the next layer is such a call.
struct KvView {
  KvSideView k, v;
  SharedList<std::uint64_t> lengths = {};    // tokens of each sequence
  std::optional<std::uint64_t> window = {};  // newest keys that a token sees, including its own; none: all
  std::uint64_t sinks = 0;                   // first keys, which a token sees besides; 0 without a window

  // Keys and values that store() wrote into the caller's memory. Each run is a whole sequence, from position 0 on.
  static KvView of_slots(const SlotView& k, const SlotView& v, std::span<const TokenRun> sequences) {
    std::vector<std::shared_ptr<const KvPages>> lists;
    std::vector<std::uint64_t> lengths;
    for (const TokenRun& sequence : sequences) {
      auto pages = std::make_shared<KvPages>();
      pages->page_table.assign(sequence.page_table.begin(), sequence.page_table.end());
      if (sequence.page_table.empty()) pages->page_table.push_back(0);
      pages->ring = sequence.capacity;
      // A length beyond 2^64 - 1 becomes that, and attend() refuses it.
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - sequence.position;
      lengths.push_back(sequence.position + std::min<std::uint64_t>(sequence.tokens, room));
      lists.push_back(std::move(pages));
    }
    const SharedList shared(std::move(lists));
    return {
        .k = {.dense = k, .sequences = shared}, .v = {.dense = v, .sequences = shared}, .lengths = std::move(lengths)};
  }
};

}  // namespace rota::inline ROTA_ABI
