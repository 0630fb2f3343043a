#include <algorithm>

#include "cache/state.h"

// What can be seen of a cache. A view shares the page tables of its sequences, which never change.

namespace rota::cache {
namespace {

// Of each vector the first numbers. Precondition: nothing is sealed.
KvSideView first_dims(KvSideView side, std::uint64_t dim) {
  side.dense.shape.dim = dim;
  if (side.step) side.step->shape.dim = dim;
  return side;
}

}  // namespace

Result<std::uint64_t> State::length(Sequence sequence) const {
  const std::lock_guard lock(mutex_);
  auto index = sequences_.find({"KvCache::length", {"sequence"}}, sequence);
  if (!index) return index.error();
  return sequences_[*index].state.length;
}

Result<std::uint64_t> State::sealed_length(Sequence sequence) const {
  const std::lock_guard lock(mutex_);
  auto index = sequences_.find({"KvCache::sealed_length", {"sequence"}}, sequence);
  if (!index) return index.error();
  const std::uint64_t sealed = sealed_before(sequences_[*index].state);
  std::uint64_t page = 1;  // of all groups: each is a power of two
  for (const GroupSide& group_side : layout_.group_sides) page = std::max(page, group_side.rule.page);
  return sealed / page * page;
}

Result<std::uint64_t> State::first_position(Sequence sequence) const {
  const std::lock_guard lock(mutex_);
  auto index = sequences_.find({"KvCache::first_position", {"sequence"}}, sequence);
  if (!index) return index.error();
  const std::vector<Pages>& group_sides = sequences_[*index].state.group_sides;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < group_sides.size(); ++i) {
    first = std::max(first, group_sides[i]->first_page * layout_.group_sides[i].rule.page);
  }
  return first;
}

KvView State::view_of(std::size_t layer, const SequenceLists& lists) const {
  const auto& [number, group, index] = layout_.layers[layer];
  const std::size_t values = group_side_of(group, KvSide::values);
  const bool in_keys = layout_.group_sides[values].in_keys;
  const KvSideView keys = memory_[group_side_of(group, KvSide::keys)].view(index);
  KvView view{.k = keys,
              .v = in_keys ? first_dims(keys, layout_.group_sides[values].dim) : memory_[values].view(index),
              .lengths = lists.lengths,
              .window = spec_.groups[group].window,
              .sinks = spec_.groups[group].keep_sinks ? spec_.groups[group].sinks : 0};
  view.k.sequences = lists.k;
  view.v.sequences = in_keys ? lists.k : lists.v;
  return view;
}

void State::add_sequence(SequenceLists& lists, const SequenceState& state, std::size_t layer,
                         std::uint64_t length) const {
  const std::size_t group = layout_.layers[layer].group;
  lists.k.edit().push_back(state.pages(group_side_of(group, KvSide::keys), layer));
  lists.v.edit().push_back(state.pages(group_side_of(group, KvSide::values), layer));
  lists.lengths.edit().push_back(length);
}

// The step's sequences as the layer has them now, each with the tokens up to where the step names it.
const SequenceLists& State::lists_of(const Step& step, std::size_t layer) const {
  const auto state_of = [&](std::size_t i) -> const SequenceState& {
    return sequences_[step.members[i].sequence.index].state;
  };
  const auto length_of = [&](std::size_t i) { return step.members[i].position + step.members[i].tokens; };
  const std::size_t group = layout_.layers[layer].group;
  step.lists.resize(spec_.groups.size());
  SequenceLists& lists = step.lists[group];
  bool current = lists.lengths.size() == step.members.size();
  for (std::size_t i = 0; current && i < step.members.size(); ++i) {
    const SequenceState& state = state_of(i);
    current = lists.k[i] == state.pages(group_side_of(group, KvSide::keys), layer) &&
              lists.v[i] == state.pages(group_side_of(group, KvSide::values), layer) &&
              lists.lengths[i] == length_of(i);
  }
  if (current) return lists;
  lists = {};
  lists.k.edit().reserve(step.members.size());
  lists.v.edit().reserve(step.members.size());
  lists.lengths.edit().reserve(step.members.size());
  for (std::size_t i = 0; i < step.members.size(); ++i) add_sequence(lists, state_of(i), layer, length_of(i));
  return lists;
}

Result<KvView> State::view(std::span<const Sequence> sequences, std::uint32_t number) const {
  constexpr std::string_view kOp = "KvCache::view";
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kOp, number);
  if (!layer) return layer.error();
  SequenceLists lists;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    auto index = sequences_.find({kOp, {"sequences", i}}, sequences[i]);
    if (!index) return index.error();
    const SequenceState& state = sequences_[*index].state;
    if (state.step && !state.step->appended[*layer].is_set()) {
      return core::refuse({kOp, {"sequences", i}}, "in a step that has not appended this layer", "its append before");
    }
    add_sequence(lists, state, *layer, state.length);
  }
  return view_of(*layer, lists);
}

Result<KvView> State::view(const Step& step, std::uint32_t number) const {
  constexpr std::string_view kOp = "KvStep::view";
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kOp, number);
  if (!layer) return layer.error();
  for (const Step::Member& member : step.members) {
    if (sequences_.is_in_step(step, member)) continue;
    return core::refuse({kOp, {"the step"}},
                        "over for a sequence that was closed or truncated, or its encoder was dropped",
                        "all of its sequences as it left them");
  }
  if (!step.appended[*layer].is_set()) {
    return core::refuse({kOp, {"layer"}}, core::text("{}, which was not appended", number), "its append before");
  }
  const auto is_done = [&](const Step::Member& member) {
    const auto& transition = sequences_[member.sequence.index].state.transition;
    return member.takes_turns && (!transition || transition->done[*layer].is_set());
  };
  if (std::ranges::any_of(step.members, is_done)) {
    return core::refuse({kOp, {"layer"}}, core::text("{}, which is done: not all that its tokens see is there", number),
                        "the layer of its group that was appended last, or LayerOrder::together");
  }
  return view_of(*layer, lists_of(step, *layer));
}

KvCounters State::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  KvCounters counters{.seals = moved_.seals, .unseals = moved_.unseals, .copied_bytes = moved_.copied_bytes};
  for (std::size_t group_side = 0; group_side < pools_.size(); ++group_side) {
    const auto add = [&](KvPoolCounters& to, PoolKind kind) {
      const PagePool& pool = pools_[group_side].of(kind);
      const std::uint64_t page_bytes = layout_.group_sides[group_side].pool(kind).page_bytes;
      to.pages += pool.pages();
      to.used += pool.used();
      to.shared += pool.shared();
      to.bytes_used += pool.used() * page_bytes;
      to.allocated += pool.committed();
      to.bytes_allocated += pool.committed() * page_bytes;
    };
    add(counters.sealed, PoolKind::sealed);
    add(counters.dense, PoolKind::dense);
    add(counters.sinks, PoolKind::sinks);
    add(counters.step, PoolKind::step);
  }
  for (const SequenceEntry& entry : sequences_.entries()) {
    counters.sequences += entry.open && entry.loads != Loads::anew ? 1 : 0;
    counters.tokens += entry.state.length;
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
