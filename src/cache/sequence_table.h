#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/change.h"
#include "cache/layout.h"
#include "cache/step.h"
#include "core/error.h"
#include "rota/kv_cache.h"

namespace rota::cache {

// Whether a load() goes on that will change a sequence. Nobody knows a new one yet.
enum class Loads : std::uint8_t { no, anew, onto };

// One sequence, or room for one.
struct SequenceEntry {
  SequenceState state = {};
  std::uint32_t generation = 0;  // rises when the sequence is closed, so that its handles name nothing
  bool open = false;
  bool is_listed = false;                    // in the table's list of those that may be due
  std::uint64_t named_in = 0;                // number of the last change that has a new state for it,
  std::size_t named_at = 0;                  // and where in NewStates
  Transaction* changed_in = nullptr;         // the open encoder that changed it: others wait for its end
  std::optional<SequenceState> before = {};  // the state before that; none where the sequence was forked there
  Loads loads = Loads::no;

  bool is_held_against(const Transaction& transaction) const noexcept {
    return loads != Loads::no || (changed_in != nullptr && changed_in != &transaction);
  }
};

// The sequences of one cache, by index.
//
// Invariants: an entry is either open or in the list of free ones. `before` has a value only while `changed_in` is set.
// The lists of free and of due entries have room for every entry, so that vacate() and list_if_due() need no memory.
class SequenceTable {
 public:
  // Gives the cache a number, unique in this process, by which it recognizes handles of others.
  SequenceTable(std::span<const GroupSide> group_sides, std::uint32_t most_sequences) noexcept;

  SequenceEntry& operator[](std::uint32_t index) noexcept { return entries_[index]; }
  const SequenceEntry& operator[](std::uint32_t index) const noexcept { return entries_[index]; }
  std::span<const SequenceEntry> entries() const noexcept { return entries_; }

  Sequence handle(std::uint32_t index) const noexcept { return {id_, index, entries_[index].generation}; }

  // An open sequence, or null.
  SequenceEntry* find(Sequence sequence) noexcept;

  // The index of an open sequence.
  Result<std::uint32_t> find(const core::Refusal& refusal, Sequence sequence) const;

  // As above, and no other open encoder has changed the sequence: else the answer is busy.
  Result<std::uint32_t> find_to_change(const core::Refusal& refusal, Sequence sequence,
                                       const Transaction& transaction) const;

  // Whether a member of the step is still in it.
  bool is_in_step(const Step& step, const Step::Member& member) const noexcept;

  // An index for occupy(), which must be the next call of the two. Nothing is taken yet, but references to entries end.
  Result<std::uint32_t> free_entry();
  SequenceEntry& occupy(std::uint32_t index) noexcept;
  void vacate(std::uint32_t index) noexcept;

  // The number of a new change. `named_in` of an entry tells whether that change has a new state for it.
  std::uint64_t next_change() noexcept { return ++last_change_; }

  // Sequences that settling may change, unless a step that is held keeps their pages. list_if_due() is called whenever
  // a state was set; due() drops those that are due no more.
  std::span<const std::uint32_t> due() noexcept;
  void list_if_due(std::uint32_t index) noexcept;

 private:
  bool may_be_due(const SequenceEntry& entry) const noexcept;

  const std::uint64_t id_;
  const std::span<const GroupSide> group_sides_;
  const std::uint32_t most_sequences_;
  std::vector<SequenceEntry> entries_;  // as many as were ever open at once
  std::vector<std::uint32_t> free_;     // the last is the next to be used
  std::vector<std::uint32_t> due_;
  std::uint64_t last_change_ = 0;
};

// What a call makes of sequences.
class NewStates {
 public:
  struct NewState {
    std::uint32_t index;
    SequenceState state;
    bool named;  // by the call, which has settled it as it wants
  };

  explicit NewStates(SequenceTable& table) noexcept : table_(table), change_(table.next_change()) {}

  // The newest counts.
  void set(std::uint32_t index, SequenceState state, bool named = true) {
    if (has(index)) {
      list_[table_[index].named_at] = {index, std::move(state), named};
      return;
    }
    list_.push_back({index, std::move(state), named});
    table_[index].named_in = change_;
    table_[index].named_at = list_.size() - 1;
  }
  bool is_named(std::uint32_t index) const noexcept { return has(index) && list_[table_[index].named_at].named; }

  // Precondition: set() before.
  SequenceState& edit(std::uint32_t index) noexcept { return list_[table_[index].named_at].state; }

  // As the call leaves it so far.
  const SequenceState& of(std::uint32_t index) const noexcept {
    return has(index) ? list_[table_[index].named_at].state : table_[index].state;
  }

  std::vector<NewState>& list() noexcept { return list_; }
  const std::vector<NewState>& list() const noexcept { return list_; }

 private:
  bool has(std::uint32_t index) const noexcept { return table_[index].named_in == change_; }

  SequenceTable& table_;
  std::uint64_t change_;
  std::vector<NewState> list_;
};

}  // namespace rota::cache
