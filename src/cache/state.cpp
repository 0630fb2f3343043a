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

void Work::ended(End end) noexcept { state->ended(*this, end); }

State::State(std::shared_ptr<runtime::DeviceState> device, KvCacheSpec spec, Layout layout, Allocated memory)
    : id_(next_id()),
      device_(std::move(device)),
      spec_(std::move(spec)),
      layout_(std::move(layout)),
      memory_(std::move(memory.tracks)),
      counters_(std::move(memory.counters)),
      no_pages_(std::make_shared<const KvPages>()) {
  for (const Track& track : layout_.tracks) pools_.emplace_back(track.memory);
}

Result<std::shared_ptr<State>> State::create(Device& device, const KvCacheSpec& spec) {
  if (!device.state()) return core::refuse({"KvCache::create", {"device"}}, "moved from", "an open one");
  auto layout = lay_out(spec);
  if (!layout) return layout.error();
  Allocated allocated;
  for (const Track& track : layout->tracks) {
    auto memory = TrackMemory::allocate(device, track);
    if (!memory) return memory.error();
    allocated.tracks.push_back(std::move(memory).value());
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

Result<std::uint32_t> State::find_to_change(const core::Refusal& refusal, Sequence sequence, const Work& work) const {
  auto slot = find(refusal, sequence);
  if (!slot) return slot;
  if (!slots_[*slot].is_held_against(work)) return slot;
  return busy(core::refuse(refusal, "changed in another encoder that is not submitted yet",
                           "that encoder, or its end before: wait() tells when"));
}

// It stays free until its text is there. Slots may move.
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
  slot.text = {};
  slot.before.reset();
  slot.changed_in = nullptr;
  slot.open = false;
  ++slot.generation;
  free_slots_.push_back(index);
}

void State::list_if_due(std::uint32_t index) noexcept {
  Slot& slot = slots_[index];
  if (slot.is_listed || !is_due(layout_.tracks, slot.text, slot.text.length)) return;
  slot.is_listed = true;
  due_.push_back(index);
}

// Older ones may find that what they would see has left.
std::uint64_t State::first_row(const Text& text) noexcept {
  return text.step && text.step->is_held() ? text.step_begin : text.length;
}

bool State::is_finished(const Step& step, const Work& work) const noexcept {
  return std::ranges::all_of(step.marks, [&](const AppendMark& mark) { return mark.is_before(work); });
}

Status State::check_finished(const core::Refusal& refusal, const Text& text, const Work& work) const {
  if (!text.step) return {};
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const AppendMark& mark = text.step->marks[layer];
    if (mark.is_before(work)) continue;
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

bool State::is_alive(const Step& step, const Step::Part& part) const noexcept {
  const Slot& slot = slots_[part.sequence.slot];
  return slot.open && slot.generation == part.sequence.generation && slot.text.step.get() == &step;
}

// ---- changing things

Result<Sequence> State::open() {
  const std::lock_guard lock(mutex_);
  Text text{.tracks = std::vector<Pages>(layout_.tracks.size(), no_pages_)};
  auto index = free_slot();
  if (!index) return index.error();
  free_slots_.pop_back();
  Slot& slot = slots_[*index];
  slot.text = std::move(text);
  slot.open = true;
  return Sequence{id_, *index, slot.generation};
}

Status State::close(Sequence sequence) {
  const std::lock_guard lock(mutex_);
  auto index = find({"KvCache::close", {"sequence"}}, sequence);
  if (!index) return index.error();
  const Slot& slot = slots_[*index];
  std::vector<PageUse> uses = uses_of(slot.text);
  limbo_.reserve(limbo_.size() + works_.size() + 1);
  if (Work* const work = slot.changed_in; work != nullptr) {
    // Submitted, the text goes as it is; dropped, as it was.
    const std::vector<PageUse> were = slot.before ? uses_of(*slot.before) : std::vector<PageUse>{};
    work->given.reserve(work->given.size() + uses.size());
    work->taken.reserve(work->taken.size() + were.size());
    work->given.insert(work->given.end(), uses.begin(), uses.end());
    work->taken.insert(work->taken.end(), were.begin(), were.end());
  } else {
    give_back(std::move(uses));
  }
  vacate(*index);
  ended_.notify_all();
  return {};
}

// Whether pages wait for the end of an encoder up to `serial`.
bool State::pages_wait(std::uint64_t serial, const Work* except) const noexcept {
  const auto is_open = [&](const Work* work) { return work != except && work->serial != 0 && work->serial <= serial; };
  return std::ranges::any_of(works_, [&](const Work* work) {
    return is_open(work) && (!limbo_.empty() || !work->given.empty() || !work->taken.empty());
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
    const bool appending = slot.text.step && std::ranges::any_of(slot.text.step->marks, [](const AppendMark& mark) {
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

Result<Work*> State::work_in(std::string_view op, Encoder& encoder) {
  if (Status status = encoder.status(); !status) return status.error();
  runtime::Recorder* const recorder = encoder.recorder();
  if (recorder->device() != device_) {
    return core::refuse({op, {"encoder"}}, core::text("of another device ({})", recorder->device()->info().id),
                        "one of the cache's own {}", device_->info().id);
  }
  const auto found = std::ranges::find(works_, recorder, &Work::recorder);
  if (found != works_.end()) return *found;
  limbo_.reserve(limbo_.size() + works_.size() + 2);
  works_.reserve(works_.size() + 1);
  auto work = std::make_shared<Work>(shared_from_this(), recorder);
  recorder->watch(work);
  works_.push_back(work.get());
  return work.get();
}

template <class Plan>
Status State::change(std::string_view op, Encoder& encoder, const Plan& plan, std::shared_ptr<Step> step) {
  auto work = work_in(op, encoder);
  if (!work) return work.error();
  Change change(layout_.tracks, pools_);
  NewTexts texts{slots_, ++last_change_};
  if (Status status = plan(change, **work, texts); !status) {
    if (!change.lacks_pages() || !pages_wait(last_serial_, *work)) return status;
    short_until_ = last_serial_;
    return Error{Errc::busy,
                 core::text("{}, some until other encoders end: wait() tells when", status.error().message)};
  }
  settle_others(change, **work, texts);
  prepare(**work, change, texts);
  if (Status status = record(encoder, change); !status) return status;
  apply(**work, change, texts);
  if (step) {
    step->extended_in = *work;
    (*work)->steps.push_back(std::move(step));
  }
  return {};
}

// A text that is not in the step may wait; it is settled here where pages are left, so that it gives back dense ones.
void State::settle_others(Change& change, const Work& work, NewTexts& texts) {
  std::erase_if(due_, [&](std::uint32_t index) {
    Slot& slot = slots_[index];
    slot.is_listed = slot.open && is_due(layout_.tracks, slot.text, slot.text.length);
    return !slot.is_listed;
  });
  for (const std::uint32_t index : due_) {
    const Slot& slot = slots_[index];
    const Text& text = slot.text;
    if (texts.has(index) || slot.is_held_against(work)) continue;
    if (!is_due(layout_.tracks, text, first_row(text)) || (text.step && !is_finished(*text.step, work))) continue;
    Change other(layout_.tracks, pools_);
    auto settled = other.settled(text, first_row(text));
    if (!settled) continue;
    texts.add(index, std::move(settled).value());
    change.merge(std::move(other));
  }
}

// What fails here is the encoder's error: it will not run, and nothing has changed.
Status State::record(Encoder& encoder, const Change& change) const {
  Status status = core::guarded([&]() -> Status {
    for (std::size_t track = 0; track < memory_.size(); ++track) {
      memory_[track].record(encoder, change.moves()[track], counter(track, CounterOf::seal));
    }
    return encoder.status();
  });
  if (!status) encoder.recorder()->fail(status.error());
  return status;
}

// All that may fail for want of memory, so that apply() cannot.
void State::prepare(Work& work, const Change& change, const NewTexts& texts) {
  work.slots.reserve(work.slots.size() + texts.list.size());
  work.taken.reserve(work.taken.size() + change.taken().size());
  work.given.reserve(work.given.size() + change.given().size());
  work.steps.reserve(work.steps.size() + 1);
}

void State::apply(Work& work, Change& change, NewTexts& texts) noexcept {
  start(work);
  work.changes = true;
  work.taken.insert(work.taken.end(), change.taken().begin(), change.taken().end());
  work.given.insert(work.given.end(), change.given().begin(), change.given().end());
  for (std::size_t track = 0; track < layout_.tracks.size(); ++track) {
    const Moves& moves = change.moves()[track];
    work.seals += moves.seals.size();
    work.unseals += moves.unseals.size();
    work.copied_bytes += moves.copied_slots() * layout_.tracks[track].slot_bytes();
  }
  for (NewText& fresh : texts.list) {
    Slot& slot = slots_[fresh.slot];
    if (slot.changed_in == nullptr) {
      slot.changed_in = &work;
      work.slots.push_back(fresh.slot);
      if (slot.open) slot.before = std::move(slot.text);
    }
    if (!slot.open) free_slots_.pop_back();  // a fork's: the one that free_slot() gave
    slot.open = true;
    slot.text = std::move(fresh.text);
    list_if_due(fresh.slot);
  }
  change.keep();
}

void State::ended(Work& work, runtime::Watcher::End end) noexcept {
  const std::lock_guard lock(mutex_);
  const bool submitted = end == runtime::Watcher::End::submitted;
  std::erase(works_, &work);
  for (const Work::Append& append : work.appends) {
    AppendMark& mark = append.step->marks[append.layer];
    mark = {.recorded_in = nullptr, .submitted = submitted};
  }
  for (const std::shared_ptr<Step>& step : work.steps) step->extended_in = nullptr;
  for (const std::uint32_t index : work.slots) {
    Slot& slot = slots_[index];
    if (slot.changed_in != &work) continue;  // closed since
    slot.changed_in = nullptr;
    if (submitted) {
      slot.before.reset();
    } else if (slot.before) {
      slot.text = *std::exchange(slot.before, std::nullopt);
      list_if_due(index);
    } else {
      vacate(index);
    }
  }
  if (submitted) {
    seals_ += work.seals;
    unseals_ += work.unseals;
    copied_bytes_ += work.copied_bytes;
  }
  if (work.changes) give_back(std::move(submitted ? work.given : work.taken));
  leave_limbo();
  ended_.notify_all();
}

void State::start(Work& work) noexcept {
  if (work.serial == 0) work.serial = ++last_serial_;
}

void State::give_back(std::vector<PageUse> uses) noexcept {
  std::uint64_t newest = 0;
  for (const Work* const work : works_) newest = std::max(newest, work->serial);
  if (newest == 0) {
    release(pools_, uses);
  } else {
    limbo_.push_back({newest, std::move(uses)});
  }
}

void State::leave_limbo() noexcept {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Work* const work : works_) {
    if (work->serial != 0) oldest = std::min(oldest, work->serial);
  }
  std::erase_if(limbo_, [&](const Limbo& limbo) {
    const bool free = limbo.serial < oldest;
    if (free) release(pools_, limbo.uses);
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
  const auto plan = [&](Change& change, const Work& work, NewTexts& texts) -> Status {
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < extensions.size(); ++i) {
      const KvExtension& extension = extensions[i];
      const core::Refusal of_sequence{kOp, {"extensions", i, "sequence"}};
      const core::Refusal of_tokens{kOp, {"extensions", i, "tokens"}};
      auto slot = find_to_change(of_sequence, extension.sequence, work);
      if (!slot) return slot.error();
      if (texts.has(*slot)) {
        return core::refuse(of_sequence, "extended by this step already", "each sequence once");
      }
      const Text& text = slots_[*slot].text;
      if (Status status = check_finished(of_sequence, text, work); !status) return status;
      if (extension.tokens == 0 || extension.tokens > kMaxExtension) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens}, "1 to {}", kMaxExtension);
      }
      if (extension.tokens > kMaxLength - text.length) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens}, "a text of at most {} tokens", kMaxLength);
      }
      tokens += extension.tokens;
      if (tokens > spec_.max_step_tokens) {
        return core::refuse(of_tokens, std::uint64_t{extension.tokens},
                            "at most {} in all of a step, as max_step_tokens says", spec_.max_step_tokens);
      }
      auto settled = change.settled(text, text.length);
      if (!settled) return settled.error();
      auto extended = change.extended(*settled, extension.tokens);
      if (!extended) return extended.error();
      extended->step = step;
      extended->step_begin = text.length;
      step->parts.push_back({extension.sequence, text.length, extension.tokens});
      for (std::uint64_t position = text.length; position < extended->length; ++position) {
        step->positions.push_back(static_cast<std::int64_t>(position));
      }
      texts.add(*slot, std::move(extended).value());
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
  const auto plan = [&](Change& change, const Work& work, NewTexts& texts) -> Status {
    auto slot = find_to_change(of_sequence, sequence, work);
    if (!slot) return slot.error();
    if (Status status = check_finished(of_sequence, slots_[*slot].text, work); !status) return status;
    auto free = free_slot();
    if (!free) return free.error();
    auto settled = change.settled(slots_[*slot].text, first_row(slots_[*slot].text));
    if (!settled) return settled.error();
    auto forked = change.forked(*settled);
    if (!forked) return forked.error();
    forked->step.reset();
    texts.add(*slot, std::move(settled).value());
    texts.add(*free, std::move(forked).value());
    child = *free;
    return {};
  };
  if (Status status = change(of_sequence.op, encoder, plan); !status) return status.error();
  return Sequence{id_, child, slots_[child].generation};
}

Status State::truncate(Encoder& encoder, Sequence sequence, std::uint64_t length) {
  constexpr std::string_view kOp = "KvCache::truncate";
  const std::lock_guard lock(mutex_);
  return change(kOp, encoder, [&](Change& change, const Work& work, NewTexts& texts) -> Status {
    auto slot = find_to_change({kOp, {"sequence"}}, sequence, work);
    if (!slot) return slot.error();
    const Text& text = slots_[*slot].text;
    if (length > text.length) {
      return core::refuse({kOp, {"length"}}, length, "at most the {} tokens of the sequence", text.length);
    }
    Text finished = text;
    if (text.step) {
      // What another encoder is still to write would land in slots that the next tokens take.
      const auto elsewhere = std::ranges::find_if(text.step->marks, [&](const AppendMark& mark) {
        return mark.recorded_in != nullptr && mark.recorded_in != &work;
      });
      // A step that is not finished must go as a whole; then what it left undone does not matter.
      if (!is_finished(*text.step, work)) finished.length = text.step_begin;
      if (elsewhere != text.step->marks.end() || length > finished.length) {
        return check_finished({kOp, {"sequence"}}, text, work);
      }
    }
    const std::uint64_t first_row = length < text.length ? finished.length : State::first_row(text);
    auto truncated = this->truncated(change, finished, length, first_row);
    if (!truncated) return truncated.error();
    if (length < text.length) truncated->step.reset();
    texts.add(*slot, std::move(truncated).value());
    return {};
  });
}

// Where pages are short, what is due stays dense, so that tokens can always be taken back.
Result<Text> State::truncated(Change& change, const Text& text, std::uint64_t length, std::uint64_t first_row) {
  Change settling(layout_.tracks, pools_);
  auto truncated = settling.truncated(text, length, first_row);
  if (truncated) change.merge(std::move(settling));
  if (truncated || truncated.error().code != Errc::out_of_pages) return truncated;
  return change.cut(text, length);
}

Status State::settle(Encoder& encoder) {
  const std::lock_guard lock(mutex_);
  return change("KvCache::settle", encoder, [](Change&, const Work&, NewTexts&) -> Status { return {}; });
}

// ---- values

Counter State::counter(std::size_t track, CounterOf what) const {
  return {counters_, (kTrackCounters * track + static_cast<std::size_t>(what)) * sizeof(std::uint64_t)};
}

Status State::check_shape(const core::Argument& argument, const View& view, const Track& track,
                          std::uint64_t tokens) const {
  const auto of = [&](std::string_view field) { return core::Refusal{kAppend, {argument.name, {}, field}}; };
  if (view.shape.tokens != tokens) return core::refuse(of("shape.tokens"), view.shape.tokens, "the step's {}", tokens);
  if (view.shape.heads != track.heads) return core::refuse(of("shape.heads"), view.shape.heads, "{}", track.heads);
  if (view.shape.dim != track.dim) return core::refuse(of("shape.dim"), view.shape.dim, "{}", track.dim);
  return {};
}

// Texts that were closed or truncated since are left out: a batch goes on without them.
void State::store_side(Encoder& encoder, const Step& step, std::size_t track, const StorePair& pair) const {
  const std::uint64_t page = layout_.tracks[track].rule.page;
  std::vector<TokenRun> runs;
  std::uint64_t first = 0;  // of the runs' tokens
  std::uint64_t next = 0;
  const auto flush = [&] {
    const StorePair part{pair.from.slice(first, next - first), pair.to};
    if (!runs.empty()) {
      store(encoder, {.pairs = {&part, 1}, .sequences = runs, .non_finite = counter(track, CounterOf::append)});
    }
    runs.clear();
  };
  for (const Step::Part& part : step.parts) {
    if (is_alive(step, part)) {
      const KvPages& pages = *slots_[part.sequence.slot].text.tracks[track];
      const auto dense = std::span(pages.places).subspan(pages.sealed_pages - pages.first_page);
      runs.push_back({.tokens = part.tokens,
                      .position = part.position - pages.sealed_pages * page,
                      .capacity = dense.size() * page,
                      .table = dense,
                      .when_full = WhenFull::refuse});
      next += part.tokens;
    } else {
      flush();
      first = next += part.tokens;
    }
  }
  flush();
}

Status State::check_append(const Step& step, std::size_t layer, const Work& work) const {
  const core::Refusal refusal{kAppend, {"the step"}};
  if (std::ranges::none_of(step.parts, [&](const Step::Part& part) { return is_alive(step, part); })) {
    return core::refuse(refusal, "over: its sequences were closed or truncated, or its encoder was dropped",
                        "the newest step of a sequence");
  }
  const AppendMark& mark = step.marks[layer];
  if (mark.submitted || mark.recorded_in != nullptr) {
    return core::refuse({kAppend, {"layer"}},
                        core::text("{}, which was appended already", layout_.layers[layer].number),
                        "each layer once in a step");
  }
  if (step.extended_in != nullptr && step.extended_in != &work) {
    return core::refuse(refusal, "extended in another encoder that is not submitted",
                        "that one, or its submission first");
  }
  // A text that comes back if another encoder is dropped would lack what is stored without it now.
  for (const Step::Part& part : step.parts) {
    const Slot& slot = slots_[part.sequence.slot];
    if (slot.changed_in == &work || !slot.before || slot.before->step.get() != &step) continue;
    if (slot.text.step.get() == &step) continue;
    return core::refuse(refusal, "taken back for a sequence in another encoder that is not submitted",
                        "that one, or its submission first");
  }
  return {};
}

Status State::append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input) {
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kAppend, input.layer);
  if (!layer) return layer.error();
  auto work = work_in(kAppend, encoder);
  if (!work) return work.error();
  if (Status status = check_append(*step, *layer, **work); !status) return status;
  (*work)->appends.reserve((*work)->appends.size() + 1);

  const Layer& place = layout_.layers[*layer];
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const bool keys = side == KvSide::keys;
    const std::size_t track = track_of(place.group, side);
    const View& from = keys ? input.k : input.v;
    const Status shape = check_shape({keys ? "k" : "v"}, from, layout_.tracks[track], step->positions.size());
    if (!shape) return shape;
    store_side(encoder, *step, track, {from, memory_[track].view(place.index).dense});
  }
  if (Status status = encoder.status(); !status) return status;
  start(**work);
  (*work)->appends.push_back({step, *layer});
  step->marks[*layer].recorded_in = *work;
  return {};
}

// ---- looking at things

Result<std::uint64_t> State::length(Sequence sequence) const {
  const std::lock_guard lock(mutex_);
  auto slot = find({"KvCache::length", {"sequence"}}, sequence);
  if (!slot) return slot.error();
  return slots_[*slot].text.length;
}

KvView State::empty_view(std::size_t layer) const {
  const Layer& place = layout_.layers[layer];
  return {.k = memory_[track_of(place.group, KvSide::keys)].view(place.index),
          .v = memory_[track_of(place.group, KvSide::values)].view(place.index),
          .lengths = {},
          .window = spec_.groups[place.group].window};
}

void State::add_text(KvView& view, std::size_t layer, const Text& text) const {
  const std::size_t group = layout_.layers[layer].group;
  view.k.sequences.push_back(text.tracks[track_of(group, KvSide::keys)]);
  view.v.sequences.push_back(text.tracks[track_of(group, KvSide::values)]);
  view.lengths.push_back(text.length);
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
    const Text& text = slots_[*slot].text;
    if (text.step && !text.step->marks[*layer].submitted && text.step->marks[*layer].recorded_in == nullptr) {
      return core::refuse({kOp, {"sequences", i}}, "in a step that has not appended this layer", "its append before");
    }
    add_text(view, *layer, text);
  }
  return view;
}

Result<KvView> State::view(const Step& step, std::uint32_t number) const {
  constexpr std::string_view kOp = "KvStep::view";
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kOp, number);
  if (!layer) return layer.error();
  for (const Step::Part& part : step.parts) {
    if (is_alive(step, part)) continue;
    return core::refuse({kOp, {"the step"}},
                        "over for a sequence that was closed or truncated, or its encoder was dropped",
                        "all of its sequences as it left them");
  }
  const AppendMark& mark = step.marks[*layer];
  if (!mark.submitted && mark.recorded_in == nullptr) {
    return core::refuse({kOp, {"layer"}}, core::text("{}, which was not appended", number), "its append before");
  }
  KvView view = empty_view(*layer);
  for (const Step::Part& part : step.parts) add_text(view, *layer, slots_[part.sequence.slot].text);
  return view;
}

KvCounters State::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  KvCounters counters{.seals = seals_, .unseals = unseals_, .copied_bytes = copied_bytes_};
  for (std::size_t track = 0; track < pools_.size(); ++track) {
    const KvSideMemory& memory = layout_.tracks[track].memory;
    const auto add = [&](KvPoolCounters& to, PoolKind kind, const KvPoolSize& size) {
      const PagePool& pool = pools_[track].of(kind);
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
    counters.tokens += slot.text.length;
  }
  return counters;
}

Result<KvNonFinite> State::non_finite() const {
  std::vector<std::uint64_t> counts(kTrackCounters * layout_.tracks.size());
  if (Status status = counters_.read(std::as_writable_bytes(std::span(counts))); !status) return status.error();
  KvNonFinite sum;
  for (std::size_t track = 0; track < layout_.tracks.size(); ++track) {
    sum.appended += counts[kTrackCounters * track + static_cast<std::size_t>(CounterOf::append)];
    sum.sealed += counts[kTrackCounters * track + static_cast<std::size_t>(CounterOf::seal)];
  }
  return sum;
}

}  // namespace rota::cache
