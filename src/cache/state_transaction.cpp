#include <algorithm>
#include <utility>

#include "cache/state.h"

// The way of every change: plan -> prepare -> record -> apply, and then the end of its encoder. See transaction.h.

namespace rota::cache {

Result<Transaction*> State::transaction_in(std::string_view op, Encoder& encoder) {
  if (Status status = encoder.status(); !status) return status.error();
  runtime::Recorder* const recorder = runtime::Inside::of(encoder);
  if (recorder->device() != device_) {
    return core::refuse({op, {"encoder"}}, core::text("of another device ({})", recorder->device()->info().id),
                        "one of the cache's own {}", device_->info().id);
  }
  if (Transaction* const found = transactions_.find(recorder); found != nullptr) return found;
  transactions_.prepare_add();
  auto transaction = std::make_shared<Transaction>(shared_from_this(), recorder);
  recorder->watch(transaction);
  transactions_.add(*transaction);
  return transaction.get();
}

// Every change completes the transitions of steps that are finished: that takes no pages, and brings back the step's.
void State::complete(Planning& planning) {
  for (const std::uint32_t index : sequences_.due()) {
    const SequenceEntry& entry = sequences_[index];
    if (!entry.state.transition || entry.state.transition->at_a_pace) continue;
    if (entry.is_held_against(planning.transaction)) continue;
    if (!is_finished(entry.state, planning.transaction)) continue;
    planning.states.set(index, planning.change.completed(entry.state), false);
  }
}

// A sequence that no call names would keep its last step dense. So every change settles those that are due, as far as
// pages go; those that another encoder holds, or whose step lacks a layer, wait for a later change. So does a page that
// is sealed at a pace: its sequence does that as it goes on, and nobody else's step is longer for it.
void State::settle_all(Planning& planning, bool also_at_a_pace) {
  for (const std::uint32_t index : sequences_.due()) {
    if (planning.states.is_named(index) || sequences_[index].is_held_against(planning.transaction)) continue;
    settle_one(planning, index, also_at_a_pace);
  }
}

void State::settle_one(Planning& planning, std::uint32_t index, bool also_at_a_pace) {
  const SequenceState& state = planning.states.of(index);
  if (!is_due(layout_.group_sides, state, first_query(state), also_at_a_pace)) return;
  if (!is_finished(state, planning.transaction)) return;
  Change other(layout_, pools_, planning.transaction.given);
  auto settled = also_at_a_pace ? other.settled(other.completed(state), first_query(state))
                                : other.settled_in_passing(state, first_query(state));
  if (!settled || !other.commit()) return;  // `other` puts its pages back
  planning.states.set(index, std::move(settled).value(), false);
  planning.change.merge(std::move(other));
}

Error State::shortage(const Error& error, const Transaction* transaction) {
  if (!transactions_.note_shortage(transaction)) return error;
  return {Errc::busy, core::text("{}, some until other encoders or saves end: wait() tells when", error.message)};
}

// Reserves everything that apply() appends to, so that it cannot fail.
void State::prepare(Transaction& transaction, const Change& change, const NewStates& states) {
  transaction.sequences.reserve(transaction.sequences.size() + states.list().size());
  transaction.taken.reserve(transaction.taken.size() + change.taken().size());
  transaction.given.reserve(transaction.given.size() + change.given().size());
  transaction.steps.reserve(transaction.steps.size() + 1);
  transaction.done.reserve(transaction.done.size() + change.done().size());
}

// What fails here is kept by the encoder: half of the moves may be in it, so it must never be submitted.
Status State::record(Encoder& encoder, const Change& change) const {
  Status status = core::guarded([&]() -> Status {
    for (const auto& [group_side, layer, moves] : change.layer_moves()) {
      memory_[group_side].record(encoder, layer, moves, counter(group_side, CounterOf::seal));
    }
    for (std::size_t group_side = 0; group_side < memory_.size(); ++group_side) {
      memory_[group_side].record(encoder, change.moves()[group_side], counter(group_side, CounterOf::seal));
    }
    return encoder.status();
  });
  if (!status) runtime::Inside::of(encoder)->fail(status.error());
  return status;
}

// Precondition: there is room in the transaction's list.
void State::mark_done(Transaction& transaction, const Change& change) noexcept {
  for (const Change::Done& done : change.done()) {
    done.transition->done[done.layer].recorded_in = &transaction;
    transaction.done.push_back(done);
  }
}

void State::apply(Transaction& transaction, Change& change, NewStates& states) noexcept {
  transactions_.start(transaction);
  transaction.changes = true;
  for (const PageUse& use : change.retaken()) {
    std::swap(*std::ranges::find(transaction.given, use), transaction.given.back());
    transaction.given.pop_back();
  }
  transaction.taken.insert(transaction.taken.end(), change.taken().begin(), change.taken().end());
  transaction.given.insert(transaction.given.end(), change.given().begin(), change.given().end());
  mark_done(transaction, change);
  transaction.moved += change.counts();
  for (NewStates::NewState& fresh : states.list()) {
    SequenceEntry& entry = sequences_[fresh.index];
    if (entry.changed_in == nullptr) {
      entry.changed_in = &transaction;
      transaction.sequences.push_back(fresh.index);
      if (entry.open) entry.before = std::move(entry.state);
    }
    if (!entry.open) sequences_.occupy(fresh.index);  // a fork's
    entry.state = std::move(fresh.state);
    sequences_.list_if_due(fresh.index);
  }
  change.keep();
}

Status State::carry_out(Encoder& encoder, Transaction& transaction, Change& change, NewStates& states) {
  prepare(transaction, change, states);
  if (Status status = record(encoder, change); !status) return status;
  apply(transaction, change, states);
  return {};
}

void State::end_sequences(const Transaction& transaction, runtime::Watcher::End end) noexcept {
  for (const std::uint32_t index : transaction.sequences) {
    SequenceEntry& entry = sequences_[index];
    if (entry.changed_in != &transaction) continue;  // closed since
    entry.changed_in = nullptr;
    if (end == runtime::Watcher::End::submitted) {
      entry.before.reset();
    } else if (entry.before) {
      entry.state = *std::move(entry.before);
      entry.before.reset();
      sequences_.list_if_due(index);
    } else {
      sequences_.vacate(index);
    }
  }
}

void State::ended(Transaction& transaction, runtime::Watcher::End end) noexcept {
  const std::lock_guard lock(mutex_);
  const bool submitted = end == runtime::Watcher::End::submitted;
  transactions_.remove(transaction);
  for (const Transaction::Append& append : transaction.appends) {
    append.step->appended[append.layer] = {.recorded_in = nullptr, .submitted = submitted};
  }
  for (const Change::Done& done : transaction.done) {
    done.transition->done[done.layer] = {.recorded_in = nullptr, .submitted = submitted};
  }
  for (const std::shared_ptr<Step>& step : transaction.steps) step->extended_in = nullptr;
  end_sequences(transaction, end);
  if (submitted) moved_ += transaction.moved;
  if (transaction.changes) transactions_.give_back(std::move(submitted ? transaction.given : transaction.taken));
  transactions_.reuse_retired();
  ended_.notify_all();
}

}  // namespace rota::cache
