#include <algorithm>
#include <limits>

#include "cache/state.h"

// The calls that change sequences. Each plans its own sequences; what follows is the same for all: change().

namespace rota::cache {
namespace {

constexpr std::string_view kExtend = "KvCache::extend";
constexpr std::string_view kFork = "KvCache::fork";
constexpr std::string_view kTruncate = "KvCache::truncate";
constexpr std::uint64_t kMaxExtension = 65536;

}  // namespace

std::uint64_t State::first_query(const SequenceState& state) noexcept {
  return state.step && state.step->is_held() ? state.step_begin : state.length;
}

bool State::is_finished(const SequenceState& state, const Transaction& transaction) noexcept {
  if (!state.step) return true;
  const auto is_before = [&](const LayerMark& mark) { return mark.is_before(transaction); };
  const auto is_elsewhere = [&](const LayerMark& mark) { return mark.is_elsewhere(transaction); };
  return std::ranges::all_of(state.step->appended, is_before) &&
         (!state.transition || std::ranges::none_of(state.transition->done, is_elsewhere));
}

Status State::check_finished(const core::Refusal& refusal, const SequenceState& state,
                             const Transaction& transaction) const {
  if (is_finished(state, transaction)) return {};
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const LayerMark& appended = state.step->appended[layer];
    const std::uint32_t number = layout_.layers[layer].number;
    const bool elsewhere = appended.is_elsewhere(transaction) ||
                           (state.transition && state.transition->done[layer].is_elsewhere(transaction));
    if (elsewhere) {
      return busy(core::refuse(
          refusal, core::text("in a step whose layer {} was appended in another encoder that is not submitted", number),
          "that encoder's end before: wait() tells when"));
    }
    if (appended.is_set()) continue;
    return core::refuse(refusal, core::text("in a step whose layer {} was not appended", number),
                        "every layer appended before, or a truncation that takes the step back");
  }
  return {};
}

// Until prepare() is done nothing but pages of `change` is taken, which it puts back by itself.
template <class Plan>
Status State::change(std::string_view op, Encoder& encoder, const Plan& plan, std::shared_ptr<Step> step) {
  auto transaction = transaction_in(op, encoder);
  if (!transaction) return transaction.error();
  pools_.tend();
  Change change(layout_, pools_, (*transaction)->given);
  NewStates states(sequences_);
  Planning planning{**transaction, change, states};
  complete(planning);
  Status planned = plan(planning);
  if (planned) planned = change.commit();
  if (!planned) return change.lacks_pages() ? shortage(planned.error(), *transaction) : planned;
  settle_all(planning, false);
  if (Status status = carry_out(encoder, **transaction, change, states); !status) return status;
  if (step) {
    step->extended_in = *transaction;
    (*transaction)->steps.push_back(std::move(step));
  }
  return {};
}

Result<std::shared_ptr<Step>> State::extend(Encoder& encoder, std::span<const KvExtension> extensions) {
  const std::lock_guard lock(mutex_);
  if (extensions.empty()) return core::refuse({kExtend, {"extensions"}}, "empty", "at least one");
  auto step = std::make_shared<Step>();
  step->appended.resize(layout_.layers.size());
  // States keep the step itself. Callers share `holder` instead, and the step sees when the last of them lets go.
  const auto holder = std::make_shared<const std::shared_ptr<Step>>(step);
  step->holders = holder;
  const auto plan = [&](Planning& planning) -> Status {
    for (std::size_t i = 0; i < extensions.size(); ++i) {
      if (Status status = plan_extension(planning, extensions, i, step); !status) return status;
    }
    for (NewStates::NewState& fresh : planning.states.list()) {
      if (!fresh.named) continue;
      const std::uint64_t tokens = fresh.state.length - fresh.state.step_begin;
      fresh.state.length = fresh.state.step_begin;
      auto extended = planning.change.extended(std::move(fresh.state), tokens);
      if (!extended) return extended.error();
      fresh.state = std::move(extended).value();
    }
    for (Step::Member& member : step->members) {
      const auto& transition = planning.states.of(member.sequence.index).transition;
      member.takes_turns = transition && !transition->at_a_pace;
      step->takes_turns |= member.takes_turns;
    }
    return {};
  };
  if (Status status = change(kExtend, encoder, plan, step); !status) return status.error();
  return std::shared_ptr<Step>(holder, step.get());
}

// Adds tokens to the step, and to the length of their sequence: extended() then counts those of a sequence together.
Status State::plan_extension(Planning& planning, std::span<const KvExtension> extensions, std::size_t i,
                             const std::shared_ptr<Step>& step) {
  const core::Refusal of_sequence{kExtend, {"extensions", i, "sequence"}};
  const core::Refusal of_tokens{kExtend, {"extensions", i, "tokens"}};
  const std::uint64_t tokens = extensions[i].tokens;
  auto index = sequences_.find_to_change(of_sequence, extensions[i].sequence, planning.transaction);
  if (!index) return index.error();
  const bool again = planning.states.is_named(*index);
  const SequenceState& state = planning.states.of(*index);
  if (!again) {
    if (Status status = check_finished(of_sequence, state, planning.transaction); !status) return status;
  }
  if (tokens == 0 || tokens > kMaxExtension) return core::refuse(of_tokens, tokens, "1 to {}", kMaxExtension);
  if (tokens > kMaxLength - state.length) {
    return core::refuse(of_tokens, tokens, "a sequence of at most {} tokens", kMaxLength);
  }
  if (step->positions.size() + tokens > spec_.max_step_tokens) {
    return core::refuse(of_tokens, tokens, "at most {} in all of a step, as max_step_tokens says",
                        spec_.max_step_tokens);
  }
  if (!again) {
    SequenceState next = state;
    next.step = step;
    next.step_begin = next.length;
    planning.states.set(*index, std::move(next));
  }
  std::uint64_t& length = planning.states.edit(*index).length;
  step->members.push_back({.sequence = extensions[i].sequence, .position = length, .tokens = tokens});
  for (const std::uint64_t end = length + tokens; length < end; ++length) {
    step->positions.push_back(static_cast<std::int64_t>(length));
  }
  return {};
}

Result<Sequence> State::fork(Encoder& encoder, Sequence sequence) {
  const std::lock_guard lock(mutex_);
  std::uint32_t child = 0;
  const auto plan = [&](Planning& planning) { return plan_fork(planning, sequence, child); };
  if (Status status = change(kFork, encoder, plan); !status) return status.error();
  return sequences_.handle(child);
}

Status State::plan_fork(Planning& planning, Sequence sequence, std::uint32_t& child) {
  const core::Refusal of_sequence{kFork, {"sequence"}};
  auto index = sequences_.find_to_change(of_sequence, sequence, planning.transaction);
  if (!index) return index.error();
  if (Status status = check_finished(of_sequence, planning.states.of(*index), planning.transaction); !status) {
    return status;
  }
  auto free = sequences_.free_entry();
  if (!free) return free.error();
  const SequenceState state = planning.change.completed(planning.states.of(*index));
  auto settled = planning.change.settled(state, first_query(state));
  if (!settled) return settled.error();
  auto forked = planning.change.forked(*settled);
  if (!forked) return forked.error();
  forked->step.reset();
  planning.states.set(*index, std::move(settled).value());
  planning.states.set(*free, std::move(forked).value());
  child = *free;
  return {};
}

Status State::truncate(Encoder& encoder, Sequence sequence, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  return change(kTruncate, encoder, [&](Planning& planning) { return plan_truncation(planning, sequence, length); });
}

Status State::plan_truncation(Planning& planning, Sequence sequence, std::uint64_t length) {
  const core::Refusal of_sequence{kTruncate, {"sequence"}};
  auto index = sequences_.find_to_change(of_sequence, sequence, planning.transaction);
  if (!index) return index.error();
  const SequenceState& state = planning.states.of(*index);
  if (length > state.length) {
    return core::refuse({kTruncate, {"length"}}, length, "at most the {} tokens of the sequence", state.length);
  }
  // A step that is not finished must go as a whole; then what it left undone does not matter. But what another encoder
  // is still to write would land in slots that the next tokens take.
  SequenceState finished = state;
  if (!is_finished(state, planning.transaction)) {
    const auto is_elsewhere = [&](const LayerMark& mark) { return mark.is_elsewhere(planning.transaction); };
    const bool elsewhere = std::ranges::any_of(state.step->appended, is_elsewhere) ||
                           (state.transition && std::ranges::any_of(state.transition->done, is_elsewhere));
    if (elsewhere || length > state.step_begin) return check_finished(of_sequence, state, planning.transaction);
    finished.length = state.step_begin;
    if (state.transition && !state.transition->at_a_pace) {
      auto without = length == 0 ? Result(planning.change.emptied(state)) : planning.change.without_step(state);
      if (!without) return without.error();
      finished = std::move(without).value();
    }
  }
  const bool shorter = length < state.length;
  auto truncated = this->truncated(planning, finished, length, shorter ? finished.length : first_query(state));
  if (!truncated) return truncated.error();
  if (shorter) truncated->step.reset();
  planning.states.set(*index, std::move(truncated).value());
  return {};
}

// Where pages are short, what is due stays dense, so that tokens can always be taken back.
Result<SequenceState> State::truncated(Planning& planning, const SequenceState& state, std::uint64_t length,
                                       std::uint64_t first_query) {
  if (planning.change.keeps_pace(state, length)) return planning.change.cut_at_a_pace(state, length);
  const SequenceState completed = planning.change.completed(state);
  {
    Change settling(layout_, pools_, planning.transaction.given);
    auto truncated = settling.truncated(completed, length, first_query);
    const Status status = truncated ? settling.commit() : truncated.error();
    if (status) planning.change.merge(std::move(settling));
    if (status || status.error().code != Errc::out_of_pages) return status ? std::move(truncated) : status.error();
  }
  return planning.change.cut(completed, length);
}

Status State::settle(Encoder& encoder) {
  const std::lock_guard lock(mutex_);
  return change("KvCache::settle", encoder, [&](Planning& planning) -> Status {
    settle_all(planning, true);
    return {};
  });
}

}  // namespace rota::cache
