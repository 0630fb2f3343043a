#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cache/change.h"
#include "cache/step.h"
#include "rota/kv_cache.h"
#include "runtime/recorder.h"

// An encoder's changes to a cache count at once, and stay or go with its commands. "Retired" pages wait in the retire
// list for every encoder that was open as they were given back: one of its commands may touch them.
//
//                  | recorded                       | submitted           | dropped, or its submission failed
//   ---------------+--------------------------------+---------------------+-----------------------------------------
//   sequence       | state is new, `before` is old, | state stays,        | `before` becomes the state;
//                  | busy for other encoders        | `before` is dropped | a sequence forked here is closed
//   pages taken    | used by the new state          | stay                | retired
//   pages given    | still used by `before`         | retired             | stay
//   and retaken    | used by both                   | stay                | stay
//   layer appended | marked as recorded here        | marked as submitted | may be appended again
//   layer done     | marked as recorded here        | marked as submitted | is not done
//   step begun     | only appended to here          | appended to by all  | over: no sequence is in it
//   counts         | kept here                      | added to the cache  | forgotten
//
// A sequence that is closed meanwhile stays closed: the pages of its state join those given, the pages of its `before`
// those taken, so that all are retired either way.

namespace rota::cache {

// An error that passes without the caller's doing: the caller may wait() and try again.
inline Error busy(Error refusal) noexcept {
  refusal.code = Errc::busy;
  return refusal;
}

// What one open encoder has recorded for a cache. The encoder owns it.
class Transaction final : public runtime::Watcher {
 public:
  Transaction(std::shared_ptr<State> owner, const runtime::Recorder* in) noexcept
      : state(std::move(owner)), recorder(in) {}
  void ended(End end) noexcept override;

  struct Append {
    std::shared_ptr<Step> step;
    std::size_t layer;
  };

  std::shared_ptr<State> state;
  const runtime::Recorder* recorder;
  std::uint64_t serial = 0;  // rises from one encoder that records something to the next; 0 before that
  bool changes = false;      // sequences; appending alone does not
  std::vector<Append> appends;
  std::vector<Change::Done> done;
  std::vector<std::shared_ptr<Step>> steps;  // that begin here
  std::vector<std::uint32_t> sequences;      // indices of those that it changed; some may be closed since
  std::vector<PageUse> taken, given;
  MoveCounts moved;
};

// The transactions of open encoders, and the retire list.
//
// Submissions run in order, so that a command recorded after the end of an encoder runs after all that the encoder
// recorded. Therefore a page may be used again once every encoder has ended that had recorded something when the page
// was given back; later encoders cannot name it.
//
// Invariant: the retire list has room for one more entry of every open transaction, so that an encoder's end needs no
// memory.
class OpenTransactions {
 public:
  explicit OpenTransactions(PagePools& pools) noexcept : pools_(pools) {}

  Transaction* find(const runtime::Recorder* recorder) const noexcept;

  // Makes room for a transaction. The next add() needs no memory.
  void prepare_add();
  void add(Transaction& transaction) noexcept { open_.push_back(&transaction); }
  void remove(const Transaction& transaction) noexcept { std::erase(open_, &transaction); }

  // Called with everything that is recorded. The first call gives the transaction its serial.
  void start(Transaction& transaction) noexcept;

  // Makes room so that one give_back() outside of an encoder's end needs no memory.
  void prepare_give_back();

  // Ends uses of pages: now if no encoder has recorded anything, else when those that have are at their end.
  void give_back(std::vector<PageUse> uses) noexcept;

  // Frees the pages that no open encoder can touch any more.
  void reuse_retired() noexcept;

  // After a lack of pages: whether the end of a save, or of another encoder than the transaction's, may bring some.
  // Then short_until() is the encoder's serial, or that of a later one.
  bool note_shortage(const Transaction* transaction) noexcept;
  std::uint64_t short_until() const noexcept { return short_until_; }

  // Saves, which use pages of sequences that may go on.
  void begin_save() noexcept { ++saves_; }
  void end_save() noexcept {
    if (--saves_ == 0) short_of_saved_ = false;
  }
  bool waits_for_saves() const noexcept { return short_of_saved_; }

  // Whether pages wait for the end of an encoder with a serial of at most `serial`.
  bool pages_wait(std::uint64_t serial, const Transaction* except = nullptr) const noexcept;

 private:
  struct Retired {
    std::uint64_t serial;  // of the newest transaction that they wait for
    std::vector<PageUse> uses;
  };

  PagePools& pools_;
  std::vector<Transaction*> open_;
  std::vector<Retired> retired_;
  std::uint64_t last_serial_ = 0;
  std::uint64_t short_until_ = 0;
  std::uint64_t saves_ = 0;
  bool short_of_saved_ = false;  // pages were short while a save went on that still does
};

}  // namespace rota::cache
