#pragma once

#include <chrono>
#include <condition_variable>
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
#include "core/error.h"
#include "rota/kv_cache.h"
#include "runtime/recorder.h"

namespace rota::cache {

class Transaction;

// Each group_side counts on its own, so that keys and values do not take turns.
enum class CounterOf : std::uint8_t { append, seal };

// What became of one layer's keys and values of a step.
struct AppendMark {
  const Transaction* recorded_in = nullptr;  // not submitted yet
  bool submitted = false;

  // Whether it runs before what the transaction's encoder records next.
  bool is_before(const Transaction& transaction) const noexcept { return submitted || recorded_in == &transaction; }
};

struct Step {
  struct Member {
    Sequence sequence;
    std::uint64_t position;  // of its first token
    std::uint64_t tokens;
  };
  std::vector<Member> members;
  std::vector<std::int64_t> positions;
  std::vector<AppendMark> marks;             // one per layer of the layout
  const Transaction* extended_in = nullptr;  // not submitted yet: a layer in another encoder could outlive the step
  std::weak_ptr<const void> holders;         // KvSteps, and open encoders that append to it

  // Whether its rows may still be attended to. Then what they see stays.
  bool is_held() const noexcept { return !holders.expired(); }
};

// What one encoder has recorded for a cache and not submitted yet.
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
  std::uint64_t serial = 0;  // rises with every encoder that records something; 0 before that
  bool changes = false;      // the cache itself, beside appending
  std::vector<Append> appends;
  std::vector<std::shared_ptr<Step>> steps;  // that begin here
  std::vector<std::uint32_t> slots;          // of sequences that it changed; some may be closed since
  std::vector<PageUse> taken, given;
  std::uint64_t seals = 0, unseals = 0, copied_bytes = 0;
};

// Everything that the handles of one cache share.
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
  Result<std::shared_ptr<Step>> extend(Encoder& encoder, std::span<const KvExtension> extensions);
  Result<Sequence> fork(Encoder& encoder, Sequence sequence);
  Status truncate(Encoder& encoder, Sequence sequence, std::uint64_t length);
  Status settle(Encoder& encoder);
  Status wait(Sequence sequence, std::chrono::milliseconds at_most) const;

  struct LayerInput {
    std::uint32_t layer;
    const View& k;
    const View& v;
  };
  Status append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input);

  Result<std::uint64_t> length(Sequence sequence) const;
  Result<KvView> view(std::span<const Sequence> sequences, std::uint32_t layer) const;
  Result<KvView> view(const Step& step, std::uint32_t layer) const;
  KvCounters counters() const noexcept;
  Result<KvNonFinite> non_finite() const;

  void ended(Transaction& transaction, runtime::Watcher::End end) noexcept;

 private:
  struct Slot {
    SequenceState state = {};
    std::uint32_t generation = 0;
    bool open = false;
    bool is_listed = false;                    // in due_
    std::uint64_t named_in = 0;                // the last change that named it
    Transaction* changed_in = nullptr;         // the open encoder that changed it: others wait for its end
    std::optional<SequenceState> before = {};  // as it was before that; none where it was forked there

    bool is_held_against(const Transaction& transaction) const noexcept {
      return changed_in != nullptr && changed_in != &transaction;
    }
  };
  struct NewState {
    std::uint32_t slot;
    SequenceState state;
  };
  // What a call makes of sequences, each once.
  struct NewStates {
    void add(std::uint32_t slot, SequenceState state) {
      list.push_back({slot, std::move(state)});
      slots[slot].named_in = change;
    }
    bool has(std::uint32_t slot) const { return slots[slot].named_in == change; }

    std::vector<Slot>& slots;
    std::uint64_t change;  // its number
    std::vector<NewState> list = {};
  };
  // Pages that wait until the encoders that were open when they were given back have ended.
  struct Retired {
    std::uint64_t serial;  // of the newest of them
    std::vector<PageUse> uses;
  };

  Result<std::uint32_t> find(const core::Refusal& refusal, Sequence sequence) const;
  Result<std::size_t> find_layer(std::string_view op, std::uint32_t number) const;
  Result<std::uint32_t> find_to_change(const core::Refusal& refusal, Sequence sequence,
                                       const Transaction& transaction) const;
  Result<std::uint32_t> free_slot();
  void vacate(std::uint32_t index) noexcept;
  void list_if_due(std::uint32_t index) noexcept;
  static std::uint64_t first_query(const SequenceState& state) noexcept;
  bool is_finished(const Step& step, const Transaction& transaction) const noexcept;
  Status check_finished(const core::Refusal& refusal, const SequenceState& state, const Transaction& transaction) const;
  bool is_alive(const Step& step, const Step::Member& member) const noexcept;
  Status check_append(const Step& step, std::size_t layer, const Transaction& transaction) const;
  Status check_shape(const core::Argument& argument, const View& view, const GroupSide& group_side,
                     std::uint64_t tokens) const;

  Result<Transaction*> transaction_in(std::string_view op, Encoder& encoder);
  // Runs plan(Change&, const Transaction&, Sequence&) -> Status, settles other sequences, records and applies. A step
  // begins here.
  template <class Plan>
  Status change(std::string_view op, Encoder& encoder, const Plan& plan, std::shared_ptr<Step> step = {});
  void settle_others(Change& change, const Transaction& transaction, NewStates& states);
  Status record(Encoder& encoder, const Change& change) const;
  static void prepare(Transaction& transaction, const Change& change, const NewStates& states);
  void apply(Transaction& transaction, Change& change, NewStates& states) noexcept;
  Result<SequenceState> truncated(Change& change, const SequenceState& state, std::uint64_t length,
                                  std::uint64_t first_query);

  bool pages_wait(std::uint64_t serial, const Transaction* except) const noexcept;
  void start(Transaction& transaction) noexcept;
  void give_back(std::vector<PageUse> uses) noexcept;
  void reuse_retired() noexcept;

  Counter counter(std::size_t group_side, CounterOf what) const;
  void store_side(Encoder& encoder, const Step& step, std::size_t group_side, const StorePair& pair) const;
  void add_sequence(KvView& view, std::size_t layer, const SequenceState& state) const;
  KvView empty_view(std::size_t layer) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;  // an encoder, submitted or dropped
  const std::uint64_t id_;
  const std::shared_ptr<runtime::DeviceState> device_;
  const KvCacheSpec spec_;
  const Layout layout_;
  const std::vector<GroupSideMemory> memory_;
  const Buffer counters_;
  const Pages no_pages_;
  std::vector<GroupSidePools> pools_;
  std::vector<Slot> slots_;                 // as many as were ever open at once; those below have room for all of them
  std::vector<std::uint32_t> free_slots_;   // the last is the next to be used
  std::vector<std::uint32_t> due_;          // slots of sequences that settling may change
  std::uint64_t last_change_ = 0;           // number of changes that were tried
  std::vector<Transaction*> transactions_;  // of open encoders, which own them
  std::uint64_t last_serial_ = 0;
  std::uint64_t short_until_ = 0;  // pages were short, and some waited for encoders up to this one
  std::vector<Retired> retired_;   // has room for one more of every open transaction
  std::uint64_t seals_ = 0, unseals_ = 0, copied_bytes_ = 0;
};

}  // namespace rota::cache
