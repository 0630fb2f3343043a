#include <algorithm>

#include "cache/state.h"

// A layer's keys and values of a step. Appending changes no sequence: where the tokens go, and where they go on to when
// the layer is done, was decided by extend().

namespace rota::cache {
namespace {

constexpr std::string_view kAppend = "KvStep::append";
constexpr std::string_view kDone = "KvStep::done";
constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace

Status State::append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input) {
  const std::lock_guard lock(mutex_);
  auto index = find_layer(kAppend, input.layer);
  if (!index) return index.error();
  if (const std::uint32_t own = layout_.layers[*index].number; own != input.layer) {
    return core::refuse({kAppend, {"layer"}}, core::text("{}, which shares the cache of layer {}", input.layer, own),
                        "layers with keys and values of their own");
  }
  auto transaction = transaction_in(kAppend, encoder);
  if (!transaction) return transaction.error();
  if (Status status = check_append(*step, *index, **transaction); !status) return status;
  if (Status status = check_shapes(*step, *index, input); !status) return status;
  if (auto& appends = (*transaction)->appends; appends.empty()) appends.reserve(layout_.layers.size());
  (*transaction)->appends.reserve((*transaction)->appends.size() + 1);  // push_back below must not fail
  std::vector<std::size_t> earlier;
  for (std::size_t layer = 0; layer < layout_.layers.size() && step->takes_turns; ++layer) {
    const bool same_group = layout_.layers[layer].group == layout_.layers[*index].group;
    if (same_group && layer != *index && step->appended[layer].is_set()) earlier.push_back(layer);
  }
  if (Status status = finish_layers(encoder, *step, earlier, **transaction); !status) return status;
  const std::size_t group = layout_.layers[*index].group;
  store_side(encoder, *step, {*index, group_side_of(group, KvSide::keys)}, input.k);
  if (input.v != nullptr) store_side(encoder, *step, {*index, group_side_of(group, KvSide::values)}, *input.v);
  if (Status status = encoder.status(); !status) return status;
  transactions_.start(**transaction);
  (*transaction)->appends.push_back({step, *index});
  step->appended[*index].recorded_in = *transaction;
  return {};
}

Status State::check_append(const Step& step, std::size_t layer, const Transaction& transaction) const {
  const core::Refusal refusal{kAppend, {"the step"}};
  const auto is_member = [&](const Step::Member& member) { return sequences_.is_in_step(step, member); };
  if (std::ranges::none_of(step.members, is_member)) {
    return core::refuse(refusal, "over: its sequences were closed or truncated, or its encoder was dropped",
                        "the newest step of a sequence");
  }
  if (step.appended[layer].is_set()) {
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
    const SequenceEntry& entry = sequences_[member.sequence.index];
    if (entry.changed_in == &transaction || !entry.before || entry.before->step.get() != &step) continue;
    if (entry.state.step.get() == &step) continue;
    return core::refuse(refusal, "taken back for a sequence in another encoder that is not submitted",
                        "that one, or its submission first");
  }
  return {};
}

Status State::check_shapes(const Step& step, std::size_t layer, const LayerInput& input) const {
  const std::size_t group = layout_.layers[layer].group;
  const GroupSide& keys = layout_.group_sides[group_side_of(group, KvSide::keys)];
  const GroupSide& values = layout_.group_sides[group_side_of(group, KvSide::values)];
  if (values.in_keys != (input.v == nullptr)) {
    return core::refuse({kAppend, {"v"}}, input.v == nullptr ? "missing" : "given", "{}",
                        values.in_keys ? "keys alone: the group's values are in them" : "values, too");
  }
  if (Status status = check_shape({"k"}, input.k, keys, step.positions.size()); !status) return status;
  return input.v == nullptr ? Status() : check_shape({"v"}, *input.v, values, step.positions.size());
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

// Makes layers done that are not yet, in all sequences of the step. The step's pages serve the next layer then, so that
// commands of another encoder must not stand in between.
Status State::finish_layers(Encoder& encoder, const Step& step, std::span<const std::size_t> layers,
                            Transaction& transaction) {
  if (!step.takes_turns) return {};  // each layer of each step comes here, and a Change allocates
  const auto transition_of = [&](const Step::Member& member) {
    const bool takes_turns = member.takes_turns && sequences_.is_in_step(step, member);
    return takes_turns ? sequences_[member.sequence.index].state.transition : nullptr;
  };
  Change change(layout_, pools_, transaction.given);
  for (const std::size_t layer : layers) {
    for (const Step::Member& member : step.members) {
      const auto transition = transition_of(member);
      if (!transition || transition->done[layer].is_before(transaction)) continue;
      if (transition->done[layer].is_elsewhere(transaction) || step.appended[layer].is_elsewhere(transaction)) {
        return busy(core::refuse({"KvStep", {"the step"}},
                                 core::text("at layer {}, which was appended in another encoder that is not submitted",
                                            layout_.layers[layer].number),
                                 "that encoder, or its submission first"));
      }
      const bool again = std::ranges::any_of(
          change.done(), [&](const Change::Done& one) { return one.transition == transition && one.layer == layer; });
      if (!again) change.finish_layer(transition, layer);
    }
  }
  transaction.done.reserve(transaction.done.size() + change.done().size());
  if (Status status = record(encoder, change); !status) return status;
  transactions_.start(transaction);
  mark_done(transaction, change);
  return {};
}

Status State::done(Encoder& encoder, const Step& step, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  auto layer = find_layer(kDone, number);
  if (!layer) return layer.error();
  auto transaction = transaction_in(kDone, encoder);
  if (!transaction) return transaction.error();
  if (!step.appended[*layer].is_set()) {
    return core::refuse({kDone, {"layer"}}, core::text("{}, which was not appended", number), "its append before");
  }
  return finish_layers(encoder, step, {&*layer, 1}, **transaction);
}

// Stores one group side for the sequences that are still in the step. A command takes neighbours in the source that go
// to the same pool: tokens of sequences that were closed or truncated since are skipped, and a long run ends in pages
// of the step.
//
//   members   A      B     (C)    D
//   tokens    dense  dense        dense step step
//   commands  |----------|        |---| |-------|
void State::store_side(Encoder& encoder, const Step& step, const LayerSide& of, const View& from) const {
  const std::uint64_t page = layout_.group_sides[of.group_side].rule.page;
  const KvSideView memory = memory_[of.group_side].view(layout_.layers[of.layer].index);
  std::vector<TokenRun>& runs = runs_;
  PoolKind kind = PoolKind::dense;  // of `runs`
  std::uint64_t first = 0;          // token of `runs` in the source
  std::uint64_t next = 0;
  const auto flush = [&] {
    if (!runs.empty()) {
      const SlotView& to = kind == PoolKind::step && memory.step ? *memory.step : memory.dense;
      const StorePair neighbours{from.slice(first, next - first), to};
      store(encoder,
            {.pairs = {&neighbours, 1}, .sequences = runs, .non_finite = counter(of.group_side, CounterOf::append)});
    }
    runs.clear();
    first = next;
  };
  const auto add = [&](PoolKind to, const TokenRun& run) {
    if (run.tokens == 0) return;
    if (to != kind) flush();
    kind = to;
    runs.push_back(run);
    next += run.tokens;
  };
  runs.clear();
  for (const Step::Member& member : step.members) {
    if (!sequences_.is_in_step(step, member)) {
      flush();
      first = next += member.tokens;
      continue;
    }
    const KvPages& pages = *sequences_[member.sequence.index].state.pages(of.group_side, of.layer);
    const auto table = std::span(pages.page_table).subspan(pages.sealed_pages - pages.first_page);
    const std::uint64_t dense_pages = pages.step_page.value_or(kNever) - pages.sealed_pages;
    const auto dense = table.first(std::min<std::uint64_t>(dense_pages, table.size()));
    const auto of_step = table.subspan(dense.size());
    const std::uint64_t slot = member.position - pages.sealed_pages * page;  // of `table`
    const std::uint64_t dense_slots = dense.size() * page;
    const std::uint64_t to_dense = std::min(member.tokens, dense_slots - std::min(slot, dense_slots));
    add(PoolKind::dense, {.tokens = to_dense,
                          .position = slot,
                          .capacity = dense_slots,
                          .page_table = dense,
                          .when_full = WhenFull::refuse});
    add(PoolKind::step, {.tokens = member.tokens - to_dense,
                         .position = slot + to_dense - dense_slots,
                         .capacity = of_step.size() * page,
                         .page_table = of_step,
                         .when_full = WhenFull::refuse});
  }
  flush();
  if (layout_.group_sides[of.group_side].rule.keeps_sinks) store_sinks(encoder, step, of, from);
}

// The first tokens once more, in the page where they stay. They are counted elsewhere.
void State::store_sinks(Encoder& encoder, const Step& step, const LayerSide& of, const View& from) const {
  const std::uint64_t sinks = layout_.group_sides[of.group_side].rule.sinks;
  // Only the first steps of a sequence bring some, and each layer of each step comes here.
  const auto brings_some = [&](const Step::Member& member) { return member.position < sinks; };
  if (std::ranges::none_of(step.members, brings_some)) return;
  const KvSideView memory = memory_[of.group_side].view(layout_.layers[of.layer].index);
  std::uint64_t first = 0;
  for (const Step::Member& member : step.members) {
    const std::uint64_t begin = std::exchange(first, first + member.tokens);
    if (!brings_some(member) || !sequences_.is_in_step(step, member)) continue;
    const KvPages& pages = *sequences_[member.sequence.index].state.pages(of.group_side, of.layer);
    if (!pages.sinks || !memory.sinks) continue;
    const std::uint64_t tokens = std::min(member.tokens, sinks - member.position);
    const TokenRun run{.tokens = tokens,
                       .position = member.position,
                       .capacity = sinks,
                       .page_table = {&*pages.sinks, 1},
                       .when_full = WhenFull::refuse};
    const StorePair pair{from.slice(begin, tokens), *memory.sinks};
    store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  }
}

}  // namespace rota::cache
