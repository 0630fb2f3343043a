#include "cache/state.h"

#include <algorithm>

#include "core/bounded.h"
#include "runtime/committed_blocks.h"

namespace rota::cache {
namespace {

// For a cache without a limit: what the device has, and what addresses are left, of which each buffer wastes some.
Room room_of(const DeviceInfo& device, const KvCacheSpec& spec, std::uint64_t addresses) {
  std::uint64_t buffers = 0;  // at most
  for (const KvGroup& group : spec.groups) buffers += 2 * kPoolKinds * group.layers.size();
  const std::uint64_t left = addresses - std::min(addresses, buffers * runtime::kSparseBlockBytes);
  return {.bytes = device.memory_bytes > 0 ? std::min(device.memory_bytes, left) : left,
          .layer_bytes = GroupSideMemory::most_bytes(device.limits)};
}

Result<std::vector<GroupSideMemory>> make_memory(Device& device, const Layout& layout, GroupSideMemory::Kind kind) {
  std::vector<GroupSideMemory> made;
  for (const GroupSide& group_side : layout.group_sides) {
    auto memory = GroupSideMemory::make(device, group_side, kind);
    if (!memory) return memory.error();
    made.push_back(std::move(memory).value());
  }
  return made;
}

}  // namespace

State::State(std::shared_ptr<runtime::DeviceState> device, KvCacheSpec spec, Layout layout, Allocated memory)
    : device_(std::move(device)),
      spec_(std::move(spec)),
      layout_(std::move(layout)),
      memory_(std::move(memory.group_sides)),
      counters_(std::move(memory.counters)),
      no_pages_(std::make_shared<const KvPages>()),
      pools_(device_->backend(), layout_.group_sides, memory_),
      sequences_(layout_.group_sides, spec_.max_sequences),
      transactions_(pools_) {}

Result<std::shared_ptr<State>> State::create(Device& device, const KvCacheSpec& spec) {
  const std::shared_ptr<runtime::DeviceState>& state = runtime::Inside::of(device);
  if (!state) return core::refuse({"KvCache::create", {"device"}}, "moved from", "an open one");
  const std::uint64_t addresses = spec.at_once ? 0 : state->backend().sparse_bytes_left();
  auto layout = lay_out(spec, addresses > 0 ? std::optional(room_of(device.info(), spec, addresses)) : std::nullopt);
  if (!layout) return layout.error();
  using Kind = GroupSideMemory::Kind;
  auto made = make_memory(device, *layout, addresses > 0 ? Kind::sparse : Kind::allocated);
  // Where addresses are short, a cache with a limit is as if there were none.
  if (!made && addresses > 0 && (spec.max_tokens || spec.max_bytes)) {
    made = make_memory(device, *layout, Kind::allocated);
  }
  if (!made) return made.error();
  Allocated allocated{.group_sides = std::move(made).value()};
  auto counters = device.allocate(layout->memory.counter_bytes);
  if (!counters) return counters.error();
  allocated.counters = std::move(counters).value();
  const std::vector<std::byte> zeros(allocated.counters.size_bytes());
  if (Status status = allocated.counters.write(zeros); !status) return status.error();
  return std::shared_ptr<State>(new State(state, spec, std::move(layout).value(), std::move(allocated)),
                                core::DeleteOrLeave{});
}

Result<std::size_t> State::find_layer(std::string_view op, std::uint32_t number) const {
  const auto found = std::ranges::lower_bound(layout_.layers, number, {}, &Layer::number);
  if (found != layout_.layers.end() && found->number == number) {
    return static_cast<std::size_t>(found - layout_.layers.begin());
  }
  const auto shared = std::ranges::lower_bound(layout_.shared, number, {}, &SharedLayer::number);
  if (shared != layout_.shared.end() && shared->number == number) return shared->from;
  return core::refuse({op, {"layer"}}, number, "one of the {} that the groups name", layout_.layers.size());
}

Counter State::counter(std::size_t group_side, CounterOf what) const {
  return {counters_, (kGroupSideCounters * group_side + static_cast<std::size_t>(what)) * sizeof(std::uint64_t)};
}

Result<Sequence> State::open() {
  const std::lock_guard lock(mutex_);
  SequenceState state{.group_sides = std::vector<Pages>(layout_.group_sides.size(), no_pages_)};
  auto index = sequences_.free_entry();
  if (!index) return index.error();
  sequences_.occupy(*index).state = std::move(state);
  return sequences_.handle(*index);
}

// Closing belongs to no encoder: it holds whatever becomes of the one that has changed the sequence. See transaction.h.
Status State::close(Sequence sequence) {
  const std::lock_guard lock(mutex_);
  auto index = sequences_.find({"KvCache::close", {"sequence"}}, sequence);
  if (!index) return index.error();
  const SequenceEntry& entry = sequences_[*index];
  std::vector<PageUse> uses = uses_of(entry.state);
  transactions_.prepare_give_back();
  if (Transaction* const transaction = entry.changed_in; transaction != nullptr) {
    const std::vector<PageUse> were = entry.before ? uses_of(*entry.before) : std::vector<PageUse>{};
    transaction->given.reserve(transaction->given.size() + uses.size());
    transaction->taken.reserve(transaction->taken.size() + were.size());
    transaction->given.insert(transaction->given.end(), uses.begin(), uses.end());
    transaction->taken.insert(transaction->taken.end(), were.begin(), were.end());
  } else {
    transactions_.give_back(std::move(uses));
  }
  sequences_.vacate(*index);
  ended_.notify_all();
  return {};
}

Status State::reserve(std::uint64_t tokens) {
  const std::lock_guard lock(mutex_);
  const core::Refusal of_tokens{"KvCache::reserve", {"tokens"}};
  const std::uint64_t most = layout_.memory.max_tokens;
  if (tokens > most) return core::refuse(of_tokens, tokens, "at most the {} that the cache is limited to", most);
  if (tokens == 0) return pools_.reserve({});
  auto layout = lay_out(layout_, spec_, tokens);
  if (!layout) return layout.error();
  return pools_.reserve(layout->group_sides);
}

// Waits without the lock: what ends meanwhile may call back.
Status State::trim() {
  const auto look = [&] {
    const std::lock_guard lock(mutex_);
    pools_.look(PagePools::Spare::none);
    return pools_.last_look();
  };
  if (Status status = device_->backend().wait(look()); !status) return status;
  look();
  return {};
}

Status State::wait(Sequence sequence, std::chrono::milliseconds at_most) const {
  const core::Refusal of_sequence{"KvCache::wait", {"sequence"}};
  const auto deadline = std::chrono::steady_clock::now() + core::bounded(at_most);
  std::unique_lock lock(mutex_);
  const std::uint64_t short_until = transactions_.short_until();  // encoders that begin later are not waited for
  for (bool in_time = true;;) {
    auto index = sequences_.find(of_sequence, sequence);
    if (!index) return index.error();
    const SequenceEntry& entry = sequences_[*index];
    const Step* const step = entry.state.step.get();
    const auto is_recorded = [](const LayerMark& mark) { return mark.recorded_in != nullptr; };
    const bool held = entry.changed_in != nullptr || entry.loads != Loads::no ||
                      (step != nullptr && std::ranges::any_of(step->appended, is_recorded)) ||
                      (entry.state.transition && std::ranges::any_of(entry.state.transition->done, is_recorded));
    if (!held && !transactions_.pages_wait(short_until) && !transactions_.waits_for_saves()) return {};
    if (!in_time) {
      return busy(core::refuse(of_sequence, core::text("held by an encoder after {} ms, or pages are", at_most.count()),
                               "the encoder's end"));
    }
    in_time = ended_.wait_until(lock, deadline) == std::cv_status::no_timeout;
  }
}

}  // namespace rota::cache
