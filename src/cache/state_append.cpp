#include <algorithm>

#include "cache/state.h"

// A layer's keys and values of a step. Appending changes no sequence: where the tokens go was decided by extend().

namespace rota::cache {
namespace {

constexpr std::string_view kAppend = "KvStep::append";

}  // namespace

Status State::append(Encoder& encoder, const std::shared_ptr<Step>& step, const LayerInput& input) {
  const std::lock_guard lock(mutex_);
  auto index = find_layer(kAppend, input.layer);
  if (!index) return index.error();
  auto transaction = transaction_in(kAppend, encoder);
  if (!transaction) return transaction.error();
  if (Status status = check_append(*step, *index, **transaction); !status) return status;
  if (auto& appends = (*transaction)->appends; appends.empty()) appends.reserve(layout_.layers.size());
  (*transaction)->appends.reserve((*transaction)->appends.size() + 1);  // push_back below must not fail

  const Layer& layer = layout_.layers[*index];
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const bool keys = side == KvSide::keys;
    const std::size_t group_side = group_side_of(layer.group, side);
    const View& from = keys ? input.k : input.v;
    const Status shape = check_shape({keys ? "k" : "v"}, from, layout_.group_sides[group_side], step->positions.size());
    if (!shape) return shape;
    store_side(encoder, *step, group_side, {from, memory_[group_side].view(layer.index).dense});
  }
  if (Status status = encoder.status(); !status) return status;
  transactions_.start(**transaction);
  (*transaction)->appends.push_back({step, *index});
  step->marks[*index].recorded_in = *transaction;
  return {};
}

Status State::check_append(const Step& step, std::size_t layer, const Transaction& transaction) const {
  const core::Refusal refusal{kAppend, {"the step"}};
  const auto is_member = [&](const Step::Member& member) { return sequences_.is_in_step(step, member); };
  if (std::ranges::none_of(step.members, is_member)) {
    return core::refuse(refusal, "over: its sequences were closed or truncated, or its encoder was dropped",
                        "the newest step of a sequence");
  }
  if (step.marks[layer].is_appended()) {
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

Status State::check_shape(const core::Argument& argument, const View& view, const GroupSide& group_side,
                          std::uint64_t tokens) const {
  const auto of = [&](std::string_view field) { return core::Refusal{kAppend, {argument.name, {}, field}}; };
  if (view.shape.tokens != tokens) return core::refuse(of("shape.tokens"), view.shape.tokens, "the step's {}", tokens);
  if (view.shape.heads != group_side.heads)
    return core::refuse(of("shape.heads"), view.shape.heads, "{}", group_side.heads);
  if (view.shape.dim != group_side.dim) return core::refuse(of("shape.dim"), view.shape.dim, "{}", group_side.dim);
  return {};
}

// Stores one group side for the sequences that are still in the step. Tokens of the others are skipped in the source,
// so there is one command for each run of neighbours that are:
//
//   members   A  B  (C)  D     C was closed or truncated since
//   commands  |--|       |-|
void State::store_side(Encoder& encoder, const Step& step, std::size_t group_side, const StorePair& pair) const {
  const std::uint64_t page = layout_.group_sides[group_side].rule.page;
  std::vector<TokenRun>& runs = runs_;
  std::uint64_t first = 0;  // token of `runs` in the source
  std::uint64_t next = 0;
  const auto flush = [&] {
    const StorePair neighbours{pair.from.slice(first, next - first), pair.to};
    if (!runs.empty()) {
      store(encoder,
            {.pairs = {&neighbours, 1}, .sequences = runs, .non_finite = counter(group_side, CounterOf::append)});
    }
    runs.clear();
  };
  runs.clear();
  for (const Step::Member& member : step.members) {
    if (sequences_.is_in_step(step, member)) {
      const KvPages& pages = *sequences_[member.sequence.index].state.group_sides[group_side];
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

}  // namespace rota::cache
