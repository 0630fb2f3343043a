#include "cache/state.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>

#include "core/check.h"

namespace rota::cache {
namespace {

constexpr std::string_view kAppend = "KvStep::append";
constexpr std::uint64_t kMaxExtension = 65536;
constexpr auto kMaxLength = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());  // what rope() takes

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// What will pass without the caller's doing: it may wait() and try again.
Error busy(Error refusal) noexcept {
  refusal.code = Errc::busy;
  return refusal;
}

}  // namespace

void Transaction::ended(End end) noexcept { state->ended(*this, end); }

State::State(std::shared_ptr<runtime::DeviceState> device, KvCacheSpec spec, Layout layout, Allocated memory)
    : id_(next_id()),
      device_(std::move(device)),
      spec_(std::move(spec)),
      layout_(std::move(layout)),
      memory_(std::move(memory.group_sides)),
      counters_(std::move(memory.counters)),
      no_pages_(std::make_shared<const KvPages>()) {
  for (const GroupSide& group_side : layout_.group_sides) pools_.emplace_back(group_side.memory);
}

Result<std::shared_ptr<State>> State::create(Device& device, const KvCacheSpec& spec) {
  if (!device.state()) return core::refuse({"KvCache::create", {"device"}}, "moved from", "an open one");
  auto layout = lay_out(spec);
  if (!layout) return layout.error();
  Allocated allocated;
  for (const GroupSide& group_side : layout->group_sides) {
    auto memory = GroupSideMemory::allocate(device, group_side);
    if (!memory) return memory.error();
    allocated.group_sides.push_back(std::move(memory).value());
  }
  auto counters = device.allocate(layout->memory.counter_bytes);
  if (!counters) return counters.error();
  allocated.counters = std::move(counters).value();
  const std::vector<std::byte> zeros(allocated.counters.size_bytes());
  if (Status status = allocated.counters.write(zeros); !status) return status.error();
  return std::shared_ptr<State>(new State(device.state(), spec, std::move(layout).value(), std::move(allocated)),
                                core::DeleteOrLeave{});
}

// ---- finding things

Result<std::uint32_t> State::find(const core::Refusal& refusal, Sequence sequence) const {
  if (sequence.cache != id_) return core::refuse(refusal, "of another cache", "a sequence that this one opened");
  const bool exists = sequence.slot < slots_.size();
  if (!exists || !slots_[sequence.slot].open || slots_[sequence.slot].generation != sequence.generation) {
    return core::refuse(refusal, "closed", "a sequence that is open");
  }
  return sequence.slot;
}

Result<std::size_t> State::find_layer(std::string_view op, std::uint32_t number) const {
  const auto found = std::ranges::lower_bound(layout_.layers, number, {}, &Layer::number);
  if (found != layout_.layers.end() && found->number == number) {
    return static_cast<std::size_t>(found - layout_.layers.begin());
  }
  return core::refuse({op, {"layer"}}, number, "one of the {} that the groups name", layout_.layers.size());
}

Result<std::uint32_t> State::find_to_change(const core::Refusal& refusal, Sequence sequence,
                                            const Transaction& transaction) const {
  auto slot = find(refusal, sequence);
  if (!slot) return slot;
  if (!slots_[*slot].is_held_against(transaction)) return slot;
  return busy(core::refuse(refusal, "changed in another encoder that is not submitted yet",
                           "that encoder, or its end before: wait() tells when"));
}

// It stays free until its sequence is there. Slots may move.
Result<std::uint32_t> State::free_slot() {
  if (!free_slots_.empty()) return free_slots_.back();
  if (slots_.size() == spec_.max_sequences) {
    return Error{Errc::out_of_pages,
                 core::text("KvCache: all {} sequences are open, as many as max_sequences allows", slots_.size())};
  }
  if (slots_.size() == slots_.capacity()) {
    constexpr std::size_t kFew = 16;
    const std::size_t room = std::min<std::size_t>(spec_.max_sequences, std::max(kFew, 2 * slots_.size()));
    free_slots_.reserve(room);
    due_.reserve(room);
    slots_.reserve(room);
  }
  free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
  slots_.emplace_back();
  return free_slots_.back();
}

void State::vacate(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  slot.state = {};
  slot.before.reset();
  slot.changed_in = nullptr;
  slot.open = false;
  ++slot.generation;
  free_slots_.push_back(index);
}

void State::list_if_due(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  if (slot.is_listed || !is_due(layout_.group_sides, slot.state, slot.state.length)) return;
  slot.is_listed = true;
  due_.push_back(index);
}

// Older ones may find that what they would see has left.
std::uint64_t State::first_query(const SequenceState& state) noexcept {
  return state.step && state.step->is_held() ? state.step_begin : state.length;
}

bool State::is_finished(const Step& step, const Transaction& transaction) const noexcept {
  return std::ranges::all_of(step.marks, [&](const AppendMark& mark) { return mark.is_before(transaction); });
}

Status State::check_finished(const core::Refusal& refusal, const SequenceState& state,
                             const Transaction& transaction) const {
  if (!state.step) return {};
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const AppendMark& mark = state.step->marks[layer];
    if (mark.is_before(transaction)) continue;
    const std::uint32_t number = layout_.layers[layer].number;
    if (mark.recorded_in != nullptr) {
      return busy(core::refuse(
          refusal, core::text("in a step whose layer {} was appended in another encoder that is not submitted", number),
          "that encoder's end before: wait() tells when"));
    }
    return core::refuse(refusal, core::text("in a step whose layer {} was not appended", number),
                        "every layer appended before, or a truncation that takes the step back");
  }
  return {};
}

bool State::is_alive(const Step& step, const Step::Member& member) const noexcept {
  const Slot& slot = slots_[member.sequence.slot];
  return slot.open && slot.generation == member.sequence.generation && slot.state.step.get() == &step;
}

// ---- changing things

Result<Sequence> State::open() {
  const std::lock_guard lock(mutex_);
  SequenceState state{.group_sides = std::vector<Pages>(layout_.group_sides.size(), no_pages_)};
  auto index = free_slot();
  if (!index) return index.error();
  free_slots_.pop_back();
  Slot& slot = slots_[*index];
  slot.state = std::move(state);
  slot.open = true;
  return Sequence{id_, *index, slot.generation};
}

Status State::close(Sequence sequence) {
  const std::lock_guard lock(mutex_);
  auto index = find({"KvCache::close", {"sequence"}}, sequence);
  if (!index) return index.error();
  const Slot& slot = slots_[*index];
  std::vector<PageUse> uses = uses_of(slot.state);
  retired_.reserve(retired_.size() + transactions_.size() + 1);
  if (Transaction* const transaction = slot.changed_in; transaction != nullptr) {
    // Submitted, the sequence goes as it is; dropped, as it was.
    const std::vector<PageUse> were = slot.before ? uses_of(*slot.before) : std::vector<PageUse>{};
    transaction->given.reserve(transaction->given.size() + uses.size());
    transaction->taken.reserve(transaction->taken.size() + were.size());
    transaction->given.insert(transaction->given.end(), uses.begin(), uses.end());
    transaction->taken.insert(transaction->taken.end(), were.begin(), were.end());
  } else {
    give_back(std::move(uses));
  }
  vacate(*index);
  ended_.notify_all();
  return {};
}

// Whether pages wait for the end of an encoder up to `serial`.
bool State::pages_wait(std::uint64_t serial, const Transaction* except) const noexcept {
  const auto is_open = [&](const Transaction* transaction) {
    return transaction != except && transaction->serial != 0 && transaction->serial <= serial;
  };
  return std::ranges::any_of(transactions_, [&](const Transaction* transaction) {
    return is_open(transaction) && (!retired_.empty() || !transaction->given.empty() || !transaction->taken.empty());
  });
}

Status State::wait(Sequence sequence, std::chrono::milliseconds at_most) const {
  const core::Refusal of_sequence{"KvCache::wait", {"sequence"}};
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  const auto deadline = std::chrono::steady_clock::now() + std::clamp(at_most, std::chrono::milliseconds(0), kLongest);
  std::unique_lock lock(mutex_);
  const std::uint64_t serial = short_until_;
  for (bool in_time = true;;) {
    auto index = find(of_sequence, sequence);
    if (!index) return index.error();
    const Slot& slot = slots_[*index];
    const bool appending = slot.state.step && std::ranges::any_of(slot.state.step->marks, [](const AppendMark& mark) {
                             return mark.recorded_in != nullptr;
                           });
    if (slot.changed_in == nullptr && !appending && !pages_wait(serial, nullptr)) return {};
    if (!in_time) {
      return busy(core::refuse(of_sequence, core::text("held by an encoder after {} ms, or pages are", at_most.count()),
                               "the encoder's end"));
    }
    in_time = ended_.wait_until(lock, deadline) == std::cv_status::no_timeout;
  }
}

Result<Transaction*> State::transaction_in(std::string_view op, Encoder& encoder) {
  if (Status status = encoder.status(); !status) return status.error();
  runtime::Recorder* const recorder = encoder.recorder();
  if (recorder->device() != device_) {
    return core::refuse({op, {"encoder"}}, core::text("of another device ({})", recorder->device()->info().id),
                        "one of the cache's own {}", device_->info().id);
  }
  const auto found = std::ranges::find(transactions_, recorder, &Transaction::recorder);
  if (found != transactions_.end()) return *found;
  retired_.reserve(retired_.size() + transactions_.size() + 2);
  transactions_.reserve(transactions_.size() + 1);
  auto transaction = std::make_shared<Transaction>(shared_from_this(), recorder);
  recorder->watch(transaction);
  transactions_.push_back(transaction.get());
  return transaction.get();
}

template <class Plan>
Status State::change(std::string_view op, Encoder& encoder, const Plan& plan, std::shared_ptr<Step> step) {
  auto transaction = transaction_in(op, encoder);
  if (!transaction) return transaction.error();
  Change change(layout_.group_sides, pools_);
  NewStates states{slots_, ++last_change_};
  if (Status status = plan(change, **transaction, states); !status) {
    if (!change.lacks_pages() || !pages_wait(last_serial_, *transaction)) return status;
    short_until_ = last_serial_;
    return Error{Errc::busy,
                 core::text("{}, some until other encoders end: wait() tells when", status.error().message)};
  }
  settle_others(change, **transaction, states);
  prepare(**transaction, change, states);
  if (Status status = record(encoder, change); !status) return status;
  apply(**transaction, change, states);
  if (step) {
    step->extended_in = *transaction;
    (*transaction)->steps.push_back(std::move(step));
  }
  return {};
}

// A sequence that is not in the step may wait; it is settled here where pages are left, so that it gives back dense
// ones.
void State::settle_others(Change& change, const Transaction& transaction, NewStates& states) {
  std::erase_if(due_, [&](std::uint32_t index) {
    Slot& slot = slots_[index];
    slot.is_listed = slot.open && is_due(layout_.group_sides, slot.state, slot.state.length);
    return !slot.is_listed;
  });
  for (const std::uint32_t index : due_) {
    const Slot& slot = slots_[index];
    const SequenceState& state = slot.state;
    if (states.has(index) || slot.is_held_against(transaction)) continue;
    if (!is_due(layout_.group_sides, state, first_query(state)) ||
        (state.step && !is_finished(*state.step, transaction)))
      continue;
    Change other(layout_.group_sides, pools_);
    auto settled = other.settled(state, first_query(state));
    if (!settled) continue;
    states.add(index, std::move(settled).value());
    change.merge(std::move(other));
  }
}

// What fails here is the encoder's error: it will not run, and nothing has changed.
Status State::record(Encoder& encoder, const Change& change) const {
  Status status = core::guarded([&]() -> Status {
    for (std::size_t group_side = 0; group_side < memory_.size(); ++group_side) {
      memory_[group_side].record(encoder, change.moves()[group_side], counter(group_side, CounterOf::seal));
    }
    return encoder.status();
  });
  if (!status) encoder.recorder()->fail(status.error());
  return status;
}

// All that may fail for want of memory, so that apply() cannot.
void State::prepare(Transaction& transaction, const Change& change, const NewStates& states) {
  transaction.slots.reserve(transaction.slots.size() + states.list.size());
  transaction.taken.reserve(transaction.taken.size() + change.taken().size());
  transaction.given.reserve(transaction.given.size() + change.given().size());
  transaction.steps.reserve(transaction.steps.size() + 1);
}

void State::apply(Transaction& transaction, Change& change, NewStates& states) noexcept {
  start(transaction);
  transaction.changes = true;
  transaction.taken.insert(transaction.taken.end(), change.taken().begin(), change.taken().end());
  transaction.given.insert(transaction.given.end(), change.given().begin(), change.given().end());
  for (std::size_t group_side = 0; group_side < layout_.group_sides.size(); ++group_side) {
    const Moves& moves = change.moves()[group_side];
    transaction.seals += moves.seals.size();
    transaction.unseals += moves.unseals.size();
    transaction.copied_bytes += moves.copied_slots() * layout_.group_sides[group_side].slot_bytes();
  }
  for (NewState& fresh : states.list) {
    Slot& slot = slots_[fresh.slot];
    if (slot.changed_in == nullptr) {
      slot.changed_in = &transaction;
      transaction.slots.push_back(fresh.slot);
      if (slot.open) slot.before = std::move(slot.state);
    }
    if (!slot.open) free_slots_.pop_back();  // a fork's: the one that free_slot() gave
    slot.open = true;
    slot.state = std::move(fresh.state);
    list_if_due(fresh.slot);
  }
  change.keep();
}

void State::ended(Transaction& transaction, runtime::Watcher::End end) noexcept {
  const std::lock_guard lock(mutex_);
  const bool submitted = end == runtime::Watcher::End::submitted;
  std::erase(transactions_, &transaction);
  for (const Transaction::Append& append : transaction.appends) {
    AppendMark& mark = append.step->marks[append.layer];
    mark = {.recorded_in = nullptr, .submitted = submitted};
  }
  for (const std::shared_ptr<Step>& step : transaction.steps) step->extended_in = nullptr;
  for (const std::uint32_t index : transaction.slots) {
    Slot& slot = slots_[index];
    if (slot.changed_in != &transaction) continue;  // closed since
    slot.changed_in = nullptr;
    if (submitted) {
      slot.before.reset();
    } else if (slot.before) {
      slot.state = *std::exchange(slot.before, std::nullopt);
      list_if_due(index);
    } else {
      vacate(index);
    }
  }
  if (submitted) {
    seals_ += transaction.seals;
    unseals_ += transaction.unseals;
    copied_bytes_ += transaction.copied_bytes;
  }
  if (transaction.changes) give_back(std::move(submitted ? transaction.given : transaction.taken));
  reuse_retired();
  ended_.notify_all();
}

void State::start(Transaction& transaction) noexcept {
  if (transaction.serial == 0) transaction.serial = ++last_serial_;
}

void State::give_back(std::vector<PageUse> uses) noexcept {
  std::uint64_t newest = 0;
  for (const Transaction* const transaction : transactions_) newest = std::max(newest, transaction->serial);
  if (newest == 0) {
    release(pools_, uses);
  } else {
    retired_.push_back({newest, std::move(uses)});
  }
}

void State::reuse_retired() noexcept {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Transaction* const transaction : transactions_) {
    if (transaction->serial != 0) oldest = std::min(oldest, transaction->serial);
  }
  std::erase_if(retired_, [&](const Retired& retired) {
    const bool free = retired.serial < oldest;
    if (free) release(pools_, retired.uses);
    return free;
  });
}

Result<std::shared_ptr<Step>> State::extend(Encoder& encoder, std::span<const KvExtension> extensions) {
  constexpr std::string_view kOp = "KvCache::extend";
  const std::lock_guard lock(mutex_);
  if (extensions.empty()) return core::refuse({kOp, {"extensions"}}, "empty", "at least one");
  auto step = std::make_shared<Step>();
  step->marks.resize(layout_.layers.size());
  const auto holder = std::make_shared<const std::shared_ptr<Step>>(step);
  step->holders = holder;
  const auto plan = [&](Change& change, const Transaction& transaction, NewStates& states) -> Status {
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < extensions.size(); ++i) {
      const KvExtension& extension = extensions[i];
      const core::Refusal of_sequence{kOp, {"extensions", i, "sequence"}};
      const core::Refusal of_tokens{kOp, {"extensions", i, "tokens"}};
      auto slot = find_to_change(of_sequence, extension.sequence, transaction);
      if (!slot) return slot.error();
      if (states.has(*slot)) {
        return core::refuse(of_sequence, "extended by this step already", "each sequence once");
      }
      const SequenceState& state = slots_[*slot].state;
      if (Status status = check_finished(of_sequence, state, transaction); !status) return status;
      if (extension.tokens == 0 || extension.tokens > kMaxExtension) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens}, "1 to {}", kMaxExtension);
      }
      if (extension.tokens > kMaxLength - state.length) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens}, "a sequence of at most {} tokens", kMaxLength);
      }
      tokens += extension.tokens;
      if (tokens > spec_.max_step_tokens) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens},
                            "at most {} in all of a step, as max_step_tokens says", spec_.max_step_tokens);
      }
      auto settled = change.settled(state, state.length);
      if (!settled) return settled.error();
      auto extended = change.extended(*settled, extension.tokens);
      if (!extended) return extended.error();
      extended->step = step;
      extended->step_begin = state.length;
      step->members.push_back({extension.sequence, state.length, extension.tokens});
      for (std::uint64_t position = state.length; position < extended->length; ++position) {
        step->positions.push_back(static_cast<std::int64_t>(position));
      }
      states.add(*slot, std::move(extended).value());
    }
    return {};
  };
  if (Status status = change(kOp, encoder, plan, step); !status) return status.error();
  return std::shared_ptr<Step>(holder, step.get());
}

Result<Sequence> State::fork(Encoder& encoder, Sequence sequence) {
  const core::Refusal of_sequence{"KvCache::fork", {"sequence"}};
  const std::lock_guard lock(mutex_);
  std::uint32_t child = 0;
  const auto plan = [&](Change& change, const Transaction& transaction, NewStates& states) -> Status {
    auto slot = find_to_change(of_sequence, sequence, transaction);
    if (!slot) return slot.error();
    if (Status status = check_finished(of_sequence, slots_[*slot].state, transaction); !status) return status;
    auto free = free_slot();
    if (!free) return free.error();
    auto settled = change.settled(slots_[*slot].state, first_query(slots_[*slot].state));
    if (!settled) return settled.error();
    auto forked = change.forked(*settled);
    if (!forked) return forked.error();
    forked->step.reset();
    states.add(*slot, std::move(settled).value());
    states.add(*free, std::move(forked).value());
    child = *free;
    return {};
  };
  if (Status status = change(of_sequence.op, encoder, plan); !status) return status.error();
  return Sequence{id_, child, slots_[child].generation};
}

Status State::truncate(Encoder& encoder, Sequence sequence, std::uint64_t length) {
  constexpr std::string_view kOp = "KvCache::truncate";
  const std::lock_guard lock(mutex_);
  return change(kOp, encoder, [&](Change& change, const Transaction& transaction, NewStates& states) -> Status {
    auto slot = find_to_change({kOp, {"sequence"}}, sequence, transaction);
    if (!slot) return slot.error();
    const SequenceState& state = slots_[*slot].state;
    if (length > state.length) {
      return core::refuse({kOp, {"length"}}, length, "at most the {} tokens of the sequence", state.length);
    }
    SequenceState finished = state;
    if (state.step) {
      // What another encoder is still to write would land in slots that the next tokens take.
      const auto elsewhere = std::ranges::find_if(state.step->marks, [&](const AppendMark& mark) {
        return mark.recorded_in != nullptr && mark.recorded_in != &transaction;
      });
      // A step that is not finished must go as a whole; then what it left undone does not matter.
      if (!is_finished(*state.step, transaction)) finished.length = state.step_begin;
      if (elsewhere != state.step->marks.end() || length > finished.length) {
        return check_finished({kOp, {"sequence"}}, state, transaction);
      }
    }
    const std::uint64_t first_query = length < state.length ? finished.length : State::first_query(state);
    auto truncated = this->truncated(change, finished, length, first_query);
    if (!truncated) return truncated.error();
    if (length < state.length) truncated->step.reset();
    states.add(*slot, std::move(truncated).value());
    return {};
  });
}

// Where pages are short, what is due stays dense, so that tokens can always be taken back.
Result<SequenceState> State::truncated(Change& change, const SequenceState& state, std::uint64_t length,
                                       std::uint64_t first_query) {
  Change settling(layout_.group_sides, pools_);
  auto truncated = settling.truncated(state, length, first_query);
  if (truncated) change.merge(std::move(settling));
  if (truncated || truncated.error().code != Errc::out_of_pages) return truncated;
  return change.cut(state, length);
}

Status State::settle(Encoder& encoder) {
  const std::lock_guard lock(mutex_);
  return change("KvCache::settle", encoder, [](Change&, const Transaction&, NewStates&) -> Status { return {}; });
}

// ---- values

Counter State::counter(std::size_t group_side, CounterOf what) const {
  return {counters_, (kGroupSideCounters * group_side + static_cast<std::size_t>(what)) * sizeof(std::uint64_t)};
}

Status State::check_shape(const core::Argument& argument, const View& view, const GroupSide& group_side,
                          std::uint64_t tokens) const {
  const auto of = [&](std::string_view field) { return core::Refusal{kAppend, {argument.name, {}, field}}; };
  if (view.shape.tokens != tokens) return core::refuse(of("shape.tokens"), view.shape.tokens, "the step's {}", tokens);
  if (view.shape.heads != group_side.heads)
    return core::refuse(of("shape.heads"), view.shape.heads, "{}", group_side.heads);
  if (view.shape.dim != group_side.dim) return core::refuse(of("shape.dim"), view.shape.dim, "{}", group_side.dim);
  return {};
}

// Sequences that were closed or truncated since are left out: a batch goes on without them.
void State::store_side(Encoder& encoder, const Step& step, std::size_t group_side, const StorePair& pair) const {
  const std::uint64_t page = layout_.group_sides[group_side].rule.page;
  std::vector<TokenRun> runs;
  std::uint64_t first = 0;  // of the runs' tokens
  std::uint64_t next = 0;
  const auto flush = [&] {
    const StorePair member{pair.from.slice(first, next - first), pair.to};
    if (!runs.empty()) {
      store(encoder, {.pairs = {&member, 1}, .sequences = runs, .non_finite = counter(group_side, CounterOf::append)});
    }
    runs.clear();
  };
  for (const Step::Member& member : step.members) {
    if (is_alive(step, member)) {
      const KvPages& pages = *slots_[member.sequence.slot].state.group_sides[group_side];
      const auto dense = std::span(pages.page_table).subspan(pages.sealed_pages - pages.first_page);
      runs.push_back({.tokens = member.tokens,
                      .position = member.position - pages.sealed_pages * page,
                      .capacity = dense.size() * page,
                      .page_table = dense,
                      .when_full = WhenFull::refuse});
      next += member.tokens;
    } else {
      flush();
      first = next += member.tokens;
    }
  }
  flush();
}

Status State::check_append(const Step& step, std::size_t layer, const Transaction& transaction) const {
  const core::Refusal refusal{kAppend, {"the step"}};
  if (std::ranges::none_of(step.members, [&](const Step::Member& member) { return is_alive(step, member); })) {
    return core::refuse(refusal, "over: its sequences were closed or truncated, or its encoder was dropped",
                        "the newest step of a sequence");
  }
  const AppendMark& mark = step.marks[layer];
  if (mark.submitted || mark.recorded_in != nullptr) {
    return core::refuse({kAppend, {"layer"}},
                        core::text("{}, which was appended already", layout_.layers[layer].number),
                        "each layer once in a step");
  }
  if (step.extended_in != nullptr && step.extended_in != &transaction) {
    return core::refuse(refusal, "extended in another encoder that is not submitted",
                        "that one, or its submission first");
  }
  // A sequence that comes back if another encoder is dropped would lack what is stored without it now.
  for (const Step::Member& member : step.members) {
    const Slot& slot = slots_[member.sequence.slot];
    if (slot.changed_in == &transaction || !slot.before || slot.before->step.get() != &step) continue;
    if (slot.state.step.get() == &step) continue;
    return core::refuse(refusal, "taken back for a sequence in another encoder that is not submitted",
                        "that one, or its submission first");
  }
  return {};
}

Status State::append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input) {
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kAppend, input.layer);
  if (!layer) return layer.error();
  auto transaction = transaction_in(kAppend, encoder);
  if (!transaction) return transaction.error();
  if (Status status = check_append(*step, *layer, **transaction); !status) return status;
  (*transaction)->appends.reserve((*transaction)->appends.size() + 1);

  const Layer& place = layout_.layers[*layer];
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const bool keys = side == KvSide::keys;
    const std::size_t group_side = group_side_of(place.group, side);
    const View& from = keys ? input.k : input.v;
    const Status shape = check_shape({keys ? "k" : "v"}, from, layout_.group_sides[group_side], step->positions.size());
    if (!shape) return shape;
    store_side(encoder, *step, group_side, {from, memory_[group_side].view(place.index).dense});
  }
  if (Status status = encoder.status(); !status) return status;
  start(**transaction);
  (*transaction)->appends.push_back({step, *layer});
  step->marks[*layer].recorded_in = *transaction;
  return {};
}

// ---- looking at things

Result<std::uint64_t> State::length(Sequence sequence) const {
  const std::lock_guard lock(mutex_);
  auto slot = find({"KvCache::length", {"sequence"}}, sequence);
  if (!slot) return slot.error();
  return slots_[*slot].state.length;
}

KvView State::empty_view(std::size_t layer) const {
  const Layer& place = layout_.layers[layer];
  return {.k = memory_[group_side_of(place.group, KvSide::keys)].view(place.index),
          .v = memory_[group_side_of(place.group, KvSide::values)].view(place.index),
          .lengths = {},
          .window = spec_.groups[place.group].window};
}

void State::add_sequence(KvView& view, std::size_t layer, const SequenceState& state) const {
  const std::size_t group = layout_.layers[layer].group;
  view.k.sequences.push_back(state.group_sides[group_side_of(group, KvSide::keys)]);
  view.v.sequences.push_back(state.group_sides[group_side_of(group, KvSide::values)]);
  view.lengths.push_back(state.length);
}

Result<KvView> State::view(std::span<const Sequence> sequences, std::uint32_t number) const {
  constexpr std::string_view kOp = "KvCache::view";
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kOp, number);
  if (!layer) return layer.error();
  KvView view = empty_view(*layer);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    auto slot = find({kOp, {"sequences", i}}, sequences[i]);
    if (!slot) return slot.error();
    const SequenceState& state = slots_[*slot].state;
    if (state.step && !state.step->marks[*layer].submitted && state.step->marks[*layer].recorded_in == nullptr) {
      return core::refuse({kOp, {"sequences", i}}, "in a step that has not appended this layer", "its append before");
    }
    add_sequence(view, *layer, state);
  }
  return view;
}

Result<KvView> State::view(const Step& step, std::uint32_t number) const {
  constexpr std::string_view kOp = "KvStep::view";
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kOp, number);
  if (!layer) return layer.error();
  for (const Step::Member& member : step.members) {
    if (is_alive(step, member)) continue;
    return core::refuse({kOp, {"the step"}},
                        "over for a sequence that was closed or truncated, or its encoder was dropped",
                        "all of its sequences as it left them");
  }
  const AppendMark& mark = step.marks[*layer];
  if (!mark.submitted && mark.recorded_in == nullptr) {
    return core::refuse({kOp, {"layer"}}, core::text("{}, which was not appended", number), "its append before");
  }
  KvView view = empty_view(*layer);
  for (const Step::Member& member : step.members) add_sequence(view, *layer, slots_[member.sequence.slot].state);
  return view;
}

KvCounters State::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  KvCounters counters{.seals = seals_, .unseals = unseals_, .copied_bytes = copied_bytes_};
  for (std::size_t group_side = 0; group_side < pools_.size(); ++group_side) {
    const KvSideMemory& memory = layout_.group_sides[group_side].memory;
    const auto add = [&](KvPoolCounters& to, PoolKind kind, const KvPoolSize& size) {
      const PagePool& pool = pools_[group_side].of(kind);
      const std::uint64_t used = pool.pages() - pool.free();
      to.pages += pool.pages();
      to.used += used;
      to.shared += pool.shared();
      to.bytes_used += used * size.page_bytes;
    };
    add(counters.sealed, PoolKind::sealed, memory.sealed);
    add(counters.dense, PoolKind::dense, memory.dense);
    add(counters.sinks, PoolKind::sinks, memory.sinks);
  }
  for (const Slot& slot : slots_) {
    counters.sequences += slot.open ? 1 : 0;
    counters.tokens += slot.state.length;
  }
  return counters;
}

Result<KvNonFinite> State::non_finite() const {
  std::vector<std::uint64_t> counts(kGroupSideCounters * layout_.group_sides.size());
  if (Status status = counters_.read(std::as_writable_bytes(std::span(counts))); !status) return status.error();
  KvNonFinite sum;
  for (std::size_t group_side = 0; group_side < layout_.group_sides.size(); ++group_side) {
    sum.appended += counts[kGroupSideCounters * group_side + static_cast<std::size_t>(CounterOf::append)];
    sum.sealed += counts[kGroupSideCounters * group_side + static_cast<std::size_t>(CounterOf::seal)];
  }
  return sum;
}

}  // namespace rota::cache
