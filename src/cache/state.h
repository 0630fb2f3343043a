#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/change.h"
#include "cache/group_side_memory.h"
#include "cache/layout.h"
#include "cache/saved_parts.h"
#include "cache/sequence_table.h"
#include "cache/step.h"
#include "cache/transaction.h"
#include "core/error.h"
#include "rota/kv_cache.h"

namespace rota::cache {

// What the counters on the device count. Each group side has its own, so that keys and values do not take turns.
enum class CounterOf : std::uint8_t { append, seal };

// Everything that the handles of one cache share. One mutex guards all that is not const, and is held by every call
// from its first check to its last change; but not by save() and load() while bytes move.
//
//   state.cpp              creation, opening and closing, waiting
//   state_change.cpp       calls that change sequences: extend, fork, truncate, settle
//   state_transaction.cpp  what these have in common: plan, record, apply, and the encoder's end
//   state_append.cpp       a layer's keys and values
//   state_save.cpp         a sequence leaves as bytes
//   state_load.cpp         a sequence comes back
//   state_view.cpp         views and counters
//
// Invariants, whenever the mutex is free:
//  - A page's count of users in its pool is the number of states that have the page, plus the uses that were given up
//    and wait: in `given` of an open transaction, or in the retire list; plus those of saves and loads that go on.
//  - A call that fails has changed nothing that another call can see. For this, everything that may fail (planning,
//    reserving, recording) precedes apply(), which is noexcept.
//  - A KvPages is never changed once a state or a view has it.
class State : public std::enable_shared_from_this<State>, public core::OfProcess {
 public:
  static Result<std::shared_ptr<State>> create(Device& device, const KvCacheSpec& spec);
  struct Allocated {
    std::vector<GroupSideMemory> group_sides = {};
    Buffer counters = {};
  };
  State(std::shared_ptr<runtime::DeviceState> device, KvCacheSpec spec, Layout layout, Allocated memory);

  const runtime::DeviceState& device() const noexcept { return *device_; }
  const KvCacheSpec& spec() const noexcept { return spec_; }
  const KvMemory& memory() const noexcept { return layout_.memory; }

  Result<Sequence> open();
  Status close(Sequence sequence);
  Status wait(Sequence sequence, std::chrono::milliseconds at_most) const;
  Status reserve(std::uint64_t tokens);
  Status trim();

  Result<std::shared_ptr<Step>> extend(Encoder& encoder, std::span<const KvExtension> extensions);
  Result<Sequence> fork(Encoder& encoder, Sequence sequence);
  Status truncate(Encoder& encoder, Sequence sequence, std::uint64_t length);
  Status settle(Encoder& encoder);

  struct LayerInput {
    std::uint32_t layer;  // the model's number
    const View& k;
    const View* v;  // null where values are in the keys
  };
  Status append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input);
  Status done(Encoder& encoder, const Step& step, std::uint32_t layer);

  Status save(Sequence sequence, const ByteSink& sink, const KvSaveOptions& options);
  Result<std::shared_ptr<Snapshot>> snapshot(Sequence sequence, std::uint64_t begin, std::uint64_t end);
  Result<KvLoaded> load(const ByteSource& source, const KvLoadOptions& options);
  Result<KvLoaded> load(const ByteReader& reader, const KvLoadOptions& options);
  Result<KvLoaded> load(std::span<const std::byte> bytes, const KvLoadOptions& options);

  Result<std::uint64_t> length(Sequence sequence) const;
  Result<std::uint64_t> sealed_length(Sequence sequence) const;
  Result<std::uint64_t> first_position(Sequence sequence) const;
  Result<KvView> view(std::span<const Sequence> sequences, std::uint32_t layer) const;
  Result<KvView> view(const Step& step, std::uint32_t layer) const;
  KvCounters counters() const noexcept;
  Result<KvNonFinite> non_finite() const;

  // The encoder of a transaction was submitted, or never will be.
  void ended(Transaction& transaction, runtime::Watcher::End end) noexcept;

 private:
  // What a call plans with: the encoder's transaction so far, pages, and what becomes of sequences.
  struct Planning {
    const Transaction& transaction;
    Change& change;
    NewStates& states;
  };

  // The layer's index in the layout.
  Result<std::size_t> find_layer(std::string_view op, std::uint32_t number) const;
  Counter counter(std::size_t group_side, CounterOf what) const;

  // Steps. A sequence's step is finished for an encoder if every layer's append runs before what it records next, and
  // no other encoder has layers of it done.
  static bool is_finished(const SequenceState& state, const Transaction& transaction) noexcept;
  Status check_finished(const core::Refusal& refusal, const SequenceState& state, const Transaction& transaction) const;

  // The first position whose query may still be attended with. What it sees stays; older ones may find it gone.
  static std::uint64_t first_query(const SequenceState& state) noexcept;

  // Completes transitions, runs plan(Planning&) -> Status, settles other sequences, records the moves and applies the
  // states. If that succeeds, `step` begins.
  template <class Plan>
  Status change(std::string_view op, Encoder& encoder, const Plan& plan, std::shared_ptr<Step> step = {});
  Status plan_extension(Planning& planning, std::span<const KvExtension> extensions, std::size_t i,
                        const std::shared_ptr<Step>& step);
  Status plan_fork(Planning& planning, Sequence sequence, std::uint32_t& child);
  Status plan_truncation(Planning& planning, Sequence sequence, std::uint64_t length);
  Result<SequenceState> truncated(Planning& planning, const SequenceState& state, std::uint64_t length,
                                  std::uint64_t first_query);

  // The encoder's transaction, begun if this is its first call.
  Result<Transaction*> transaction_in(std::string_view op, Encoder& encoder);
  // What a lack of pages is: busy, if it will pass.
  Error shortage(const Error& error, const Transaction* transaction);
  void complete(Planning& planning);
  void settle_all(Planning& planning, bool also_at_a_pace);
  void settle_one(Planning& planning, std::uint32_t index, bool also_at_a_pace);
  Status record(Encoder& encoder, const Change& change) const;
  static void prepare(Transaction& transaction, const Change& change, const NewStates& states);
  static void mark_done(Transaction& transaction, const Change& change) noexcept;
  void apply(Transaction& transaction, Change& change, NewStates& states) noexcept;
  Status carry_out(Encoder& encoder, Transaction& transaction, Change& change, NewStates& states);
  void end_sequences(const Transaction& transaction, runtime::Watcher::End end) noexcept;

  Status check_append(const Step& step, std::size_t layer, const Transaction& transaction) const;
  Status check_shapes(const Step& step, std::size_t layer, const LayerInput& input) const;
  Status check_shape(const core::Argument& argument, const View& view, const GroupSide& group_side,
                     std::uint64_t tokens) const;
  struct LayerSide {
    std::size_t layer, group_side;  // of the layout
  };
  void store_side(Encoder& encoder, const Step& step, const LayerSide& of, const View& from) const;
  void store_sinks(Encoder& encoder, const Step& step, const LayerSide& of, const View& from) const;

  // Makes layers of the step done.
  Status finish_layers(Encoder& encoder, const Step& step, std::span<const std::size_t> layers,
                       Transaction& transaction);

  // Saving and loading.
  friend class Snapshot;
  class Saving;
  class Loading;
  Status wait_for_commands() const;
  Status check_boundary(const core::Refusal& refusal, std::uint64_t position) const;
  std::uint64_t sealed_before(const SequenceState& state) const noexcept;
  Status check_save(const SequenceState& state, const KvSaveOptions& options) const;
  Result<bool> settle_to_save(Encoder& encoder, Sequence sequence, const KvSaveOptions& options);
  Result<SavedLayout> saved_layout(const SequenceState& state, const KvSaveOptions& options) const;
  void use_pages(const SavedLayout& layout, const SequenceState& state, Saving& saving) const;
  Status give(const SavedLayout& layout, Saving& saving, std::span<const KvNote> notes, const ByteSink& sink) const;
  Status read_page(const SavedPart& part, const PageUse& use, const ByteSink& sink) const;
  Status check_to_load(const SavedLayout& saved, const KvLoadOptions& options) const;
  Status begin_load(const std::optional<Sequence>& onto, std::uint64_t begin, Loading& loading);
  Result<Change::LoadedSide> loaded_side(const SavedLayout& saved, std::size_t group_side, std::uint64_t length,
                                         const KvPages& old) const;
  Status take_pages(const SavedLayout& saved, std::uint64_t length, Loading& loading);
  template <class Fill>
  Result<KvLoaded> load(const SavedLayout& saved, const KvLoadOptions& options, const Fill& fill);
  Status load_parts(const SavedLayout& saved, const ByteSource& source, Loading& loading) const;
  Status load_parts(const SavedLayout& saved, const ByteReader& reader, Loading& loading) const;
  Status load_part(const SavedLayout& saved, const SavedPart& part, const ByteSource& source, Loading& loading) const;
  Status load_page(const SavedPart& part, SavedPartReader& reader, const Loading& loading) const;
  Status end_load(Loading& loading);

  KvView view_of(std::size_t layer, const SequenceLists& lists) const;
  void add_sequence(SequenceLists& lists, const SequenceState& state, std::size_t layer, std::uint64_t length) const;
  const SequenceLists& lists_of(const Step& step, std::size_t layer) const;

  const std::shared_ptr<runtime::DeviceState> device_;
  const KvCacheSpec spec_;
  const Layout layout_;
  const std::vector<GroupSideMemory> memory_;  // one per group side, as pools_
  const Buffer counters_;                      // [group side][CounterOf]
  const Pages no_pages_;                       // of every empty sequence

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;  // an encoder has ended, or a sequence is closed
  PagePools pools_;
  SequenceTable sequences_;
  OpenTransactions transactions_;
  MoveCounts moved_;                    // by what was submitted
  mutable std::vector<TokenRun> runs_;  // room for store_side()
};

}  // namespace rota::cache
