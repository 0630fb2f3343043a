#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/layout.h"
#include "cache/page_pools.h"
#include "cache/sequence_state.h"
#include "rota/kv_cache.h"

namespace rota::cache {

// What commands have moved.
struct MoveCounts {
  std::uint64_t seals = 0, unseals = 0;  // pages of a group side
  std::uint64_t copied_bytes = 0;

  MoveCounts& operator+=(const MoveCounts& other) noexcept {
    seals += other.seals;
    unseals += other.unseals;
    copied_bytes += other.copied_bytes;
    return *this;
  }
};

// The planner: computes the new state of sequences, takes pages for it, and lists what commands must move. It changes
// nothing but the pools, and its destructor puts the pages back unless keep() was called.
//
//   taken    uses that are added: they end if the change is undone
//   given    uses that end once the change cannot be undone any more; some may have been added by it
//   retaken  uses that an earlier change of the same encoder gave, and that go on for another sequence or position
//   moves    what commands do on the device: first in single layers, then in all
//
// A page that is given stays in use until then, so that moves overwrite nothing that an old state or its view reads.
// The same encoder may write to it all the same: its commands run after those that read what was there, and if it is
// dropped nothing was written. Only dense pages and a step's are taken again in this way, since of all moves those that
// read them come first.
class Change {
 public:
  // `given` is what the encoder's earlier changes have given. It may change once all is planned. Of changes that are
  // merged only one may take dense pages or a step's: they do not know what the others have retaken.
  Change(const Layout& layout, PagePools& pools, const std::vector<PageUse>& given);
  ~Change();

  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // The new state of a sequence. Errors are out_of_pages, and in truncated(), cut() and without_step() invalid_argument
  // if pages that the shorter sequence would see have left its window. After an error only lacks_pages() and the
  // destructor are of use. Only completed(), settled_in_passing(), extended(), without_step() and emptied() take one
  // that is in transition.

  // Every layer is done.
  SequenceState completed(SequenceState sequence);
  // Seals the pages that are due, and drops those that have left the window and that no query from position
  // `first_query` on sees.
  Result<SequenceState> settled(SequenceState sequence, std::uint64_t first_query);
  // The same but for what is sealed at a pace, which stays as it is.
  Result<SequenceState> settled_in_passing(SequenceState next, std::uint64_t first_query);
  // Settles, at a pace if the rules want one, and adds tokens.
  Result<SequenceState> extended(SequenceState sequence, std::uint64_t tokens);
  Result<SequenceState> forked(const SequenceState& settled);
  // Settles, but seals only pages that stay, and then cuts.
  Result<SequenceState> truncated(const SequenceState& sequence, std::uint64_t length, std::uint64_t first_query);
  Result<SequenceState> cut(const SequenceState& sequence, std::uint64_t length);
  // Whether what is sealed at a pace is still due with `length` tokens; if so, the shorter sequence in the same
  // transition.
  bool keeps_pace(const SequenceState& sequence, std::uint64_t length) const;
  Result<SequenceState> cut_at_a_pace(const SequenceState& sequence, std::uint64_t length);
  // As before its step, of which some layers are done or not even appended; or without any token.
  Result<SequenceState> without_step(const SequenceState& sequence);
  SequenceState emptied(const SequenceState& sequence);

  // With pages that the host will write: what follows of `pages` for each group side, up to `length` tokens.
  struct LoadedSide {
    std::uint64_t first_page, sealed_pages;  // earlier pages leave; `sealed_pages` of all that the sequence then has
  };
  Result<SequenceState> loaded(SequenceState sequence, std::uint64_t length, std::span<const LoadedSide> sides);

  // Adds what the other change does. The pages are this change's from then on.
  void merge(Change&& other);

  const std::vector<PageUse>& taken() const noexcept { return taken_; }
  const std::vector<PageUse>& given() const noexcept { return given_; }
  const std::vector<PageUse>& retaken() const noexcept { return retaken_; }
  const std::vector<Moves>& moves() const noexcept { return moves_; }

  struct OneLayer {
    std::size_t group_side, layer;  // `layer` counts the layers of the group
    LayerMoves moves;
  };
  const std::vector<OneLayer>& layer_moves() const noexcept { return layer_moves_; }

  // Layers that become done.
  struct Done {
    std::shared_ptr<Transition> transition;
    std::size_t layer;  // of the layout
  };
  const std::vector<Done>& done() const noexcept { return done_; }

  MoveCounts counts() const noexcept;

  // Makes a layer of a sequence done that is not yet.
  void finish_layer(const std::shared_ptr<Transition>& transition, std::size_t layer);

  // Puts memory behind the pages that are taken, once all is planned. The error is out_of_pages.
  Status commit();

  // The new states count: pages stay taken.
  void keep() noexcept { taken_.clear(); }

  // Whether a pool had no free page when one was asked for, or no memory for it.
  bool lacks_pages() const noexcept { return lacks_pages_; }

 private:
  Result<std::uint32_t> take(std::size_t group_side, PoolKind kind);
  std::optional<std::uint32_t> retake(std::size_t group_side, PoolKind kind);
  void give(std::size_t group_side, PoolKind kind, std::uint32_t page) { given_.push_back({group_side, kind, page}); }
  void give_sinks(std::size_t group_side, KvPages& pages);
  Status begin_sinks(SequenceState& sequence);
  Status own_sinks(std::size_t group_side, KvPages& pages, std::uint64_t length);
  LayerMoves& moves_of(std::size_t group_side, std::size_t layer);

  struct Due {
    std::uint64_t length;       // tokens of the sequence
    std::uint64_t first_query;  // position of the oldest query that may still be attended with
    std::uint64_t end;          // logical page from which on pages are not sealed
  };
  struct SealMoves {
    std::vector<ops::SlotCopy>& to_sinks;
    std::vector<SealPage>& seals;
  };
  Status seal_page(std::size_t group_side, const MappedPage& page, KvPages& next, const SealMoves& moves);
  Result<Pages> settle(std::size_t group_side, const Pages& pages, const Due& due);
  Result<Pages> extend(std::size_t group_side, const Pages& pages, std::uint64_t length);
  Result<Pages> truncate(std::size_t group_side, const Pages& pages, std::uint64_t length);
  Result<Pages> fork(std::size_t group_side, const Pages& pages, std::uint64_t length);
  Result<Pages> load(std::size_t group_side, const Pages& pages, std::uint64_t length, const LoadedSide& side);
  Status check_window(std::size_t group_side, const KvPages& pages, std::uint64_t length) const;

  std::shared_ptr<Transition> new_transition(const SequenceState& sequence);
  void count_moves(std::size_t group_side, const LayerMoves& moves);

  // At a pace.
  bool is_long(const SequenceState& sequence, std::uint64_t length) const;
  Status settle_at_a_pace(std::size_t group_side, SequenceState& next, std::uint64_t first_query);
  Result<SequenceState> extended_at_a_pace(SequenceState next, std::uint64_t length);
  Status settle_group(std::size_t group, SequenceState& next);
  Status begin_group(std::size_t group, SequenceState& next);
  bool advance_group(std::size_t group, SequenceState& next);
  void complete_group(std::size_t group, SequenceState& next);

  // At once, or in turn.
  Result<SequenceState> extended_at_once(SequenceState settled, std::uint64_t length);
  bool wants_transition(std::size_t group_side, const KvPages& pages, std::uint64_t length) const;
  Result<Pages> pages_in_step(std::size_t group_side, const KvPages& settled, std::uint64_t length);
  Status extend_in_turn(std::size_t group_side, SequenceState& next);
  Result<Pages> without_step(std::size_t group_side, const SequenceState& sequence);
  Result<std::uint32_t> own_page(std::size_t group_side, std::uint32_t page, std::uint64_t tokens, Moves& moves);

  template <class Each>
  Result<SequenceState> each_group_side(SequenceState sequence, std::uint64_t length, const Each& each);

  const Layout& layout_;
  std::span<const GroupSide> group_sides_;
  PagePools& pools_;
  const std::vector<PageUse>& given_before_;
  std::vector<PageUse> taken_, given_, retaken_;
  std::vector<Moves> moves_;  // one per group side
  std::vector<OneLayer> layer_moves_;
  std::vector<Done> done_;
  MoveCounts in_layers_;  // of layer_moves_, as if they were in all layers
  bool lacks_pages_ = false;
};

}  // namespace rota::cache
