#include <algorithm>

#include "cache/change.h"

// Sealing at a pace (PageRule::within): while tokens come one by one, the page that is due is sealed in a few layers at
// a time. What is sealed in which layer follows from the sequence's length.
//
//   tokens since it was due   1     2     3     4    ...   within
//   layers that have sealed   1     2     3     4    ...   all      of 32, within 32: then its dense page is free

namespace rota::cache {

// Whether a step would take turns if the sequence were settled.
bool Change::is_long(const SequenceState& sequence, std::uint64_t length) const {
  return layout_.order == LayerOrder::in_turn && std::ranges::any_of(group_sides_, [&](const GroupSide& group_side) {
           const PageRule& rule = group_side.rule;
           const std::uint64_t first = rule.pages(sequence.length) - rule.dense_pages(sequence.length);
           return rule.is_bounded() && rule.is_long(first, sequence.length, length);
         });
}

Result<SequenceState> Change::extended_at_a_pace(SequenceState next, std::uint64_t length) {
  if (!is_due(group_sides_, next, next.length)) return extended_at_once(std::move(next), length);
  next.transition = new_transition(next);
  for (std::size_t group = 0; group < layout_.groups(); ++group) {
    if (Status status = settle_group(group, next); !status) return status.error();
    if (Status status = begin_group(group, next); !status) return status.error();
  }
  next.length = length;
  bool through = true;
  for (std::size_t group = 0; group < layout_.groups(); ++group) through = advance_group(group, next) && through;
  // New pages are the same in both page tables.
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    Pages& before = next.transition->before[group_side];
    Pages& after = next.group_sides[group_side];
    const bool in_transition = before != after;
    const auto old = static_cast<std::ptrdiff_t>(after->page_table.size());
    auto extended = extend(group_side, after, length);
    if (!extended) return extended.error();
    after = std::move(extended).value();
    if (in_transition && after->page_table.size() == static_cast<std::size_t>(old)) continue;
    if (in_transition) {
      auto longer = std::make_shared<KvPages>(*before);
      longer->page_table.insert(longer->page_table.end(), after->page_table.begin() + old, after->page_table.end());
      before = std::move(longer);
    } else {
      before = after;
    }
  }
  if (through) next.transition.reset();
  return next;
}

// Seals all that is due but the newest page, which has its time, and leaves a page alone that has begun to be sealed.
Status Change::settle_at_a_pace(std::size_t group_side, SequenceState& next, std::uint64_t first_query) {
  const PageRule& rule = group_sides_[group_side].rule;
  Pages& pages = next.group_sides[group_side];
  Pages* const before = next.transition ? &next.transition->before[group_side] : nullptr;
  if (before != nullptr && *before != pages) return {};
  const std::uint64_t due = rule.sealed_pages(next.length);
  auto settled = settle(group_side, pages, {next.length, first_query, rule.within > 0 && due > 0 ? due - 1 : due});
  if (!settled) return settled.error();
  pages = std::move(settled).value();
  if (before != nullptr) *before = pages;
  return {};
}

Result<SequenceState> Change::settled_in_passing(SequenceState next, std::uint64_t first_query) {
  if (next.transition) next.transition = new_transition(next);
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    if (Status status = settle_at_a_pace(group_side, next, first_query); !status) return status.error();
  }
  return next;
}

// A page that had its time when another is due is through.
Status Change::settle_group(std::size_t group, SequenceState& next) {
  const std::size_t keys = group_side_of(group, KvSide::keys);
  const auto is_due = [&](std::size_t group_side) {
    return group_sides_[group_side].rule.sealed_pages(next.length) > next.group_sides[group_side]->sealed_pages;
  };
  if (is_due(keys) || is_due(keys + 1)) complete_group(group, next);
  for (const std::size_t group_side : {keys, keys + 1}) {
    if (Status status = settle_at_a_pace(group_side, next, next.length); !status) return status;
  }
  return {};
}

// The page that is due, if there is one, begins to be sealed.
Status Change::begin_group(std::size_t group, SequenceState& next) {
  Transition& transition = *next.transition;
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const std::size_t group_side = group_side_of(group, side);
    const Pages before = next.group_sides[group_side];
    if (transition.before[group_side] != before) continue;  // it has begun
    if (group_sides_[group_side].rule.sealed_pages(next.length) <= before->sealed_pages) continue;
    auto after = std::make_shared<KvPages>(KvPages{before->first_page, before->sealed_pages + 1, {}, before->sinks});
    Moves& moves = transition.moves[group_side].moves;
    Status status;
    for_each_page(*before, [&](const MappedPage& page) {
      if (page.logical != before->sealed_pages) {
        after->page_table.push_back(page.physical);
      } else {
        status = seal_page(group_side, page, *after, {moves.to_sinks, moves.seals});
        transition.leaving.push_back({group_side, PoolKind::dense, page.physical});
      }
    });
    if (!status) return status;
    transition.at_a_pace = true;
    next.group_sides[group_side] = std::move(after);
  }
  return {};
}

// Layers whose time has come are done. Returns whether all of the group are.
bool Change::advance_group(std::size_t group, SequenceState& next) {
  const std::shared_ptr<Transition>& transition = next.transition;
  std::uint64_t wanted = 0;
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const std::size_t group_side = group_side_of(group, side);
    const GroupSide& of = group_sides_[group_side];
    const Pages& after = next.group_sides[group_side];
    if (transition->before[group_side] == after) continue;
    wanted = of.rule.layers_at_pace(of.layers, after->sealed_pages, next.length);
  }
  const bool all = wanted == group_sides_[group_side_of(group, KvSide::keys)].layers;
  if (all) complete_group(group, next);
  if (all || wanted == 0) return true;
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const bool is_wanted = layout_.layers[layer].group == group && layout_.layers[layer].index < wanted;
    if (is_wanted && !transition->done[layer].is_set()) finish_layer(transition, layer);
  }
  return false;
}

// The group's layers that are not done yet are done now, and may begin again.
void Change::complete_group(std::size_t group, SequenceState& next) {
  Transition& transition = *next.transition;
  const std::size_t keys = group_side_of(group, KvSide::keys);
  const auto is_of_group = [&](std::size_t group_side) { return group_side == keys || group_side == keys + 1; };
  if (std::ranges::none_of(transition.leaving, is_of_group, &PageUse::group_side)) return;
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    if (layout_.layers[layer].group != group) continue;
    if (!transition.done[layer].is_set()) finish_layer(next.transition, layer);
    std::erase_if(done_, [&](const Done& one) { return one.transition == next.transition && one.layer == layer; });
    transition.done[layer] = {};
  }
  for (const std::size_t group_side : {keys, keys + 1}) {
    count_moves(group_side, transition.moves[group_side]);
    transition.moves[group_side] = {};
    transition.before[group_side] = next.group_sides[group_side];
  }
  std::ranges::copy_if(transition.leaving, std::back_inserter(given_), is_of_group, &PageUse::group_side);
  std::erase_if(transition.leaving, [&](const PageUse& use) { return is_of_group(use.group_side); });
}

bool Change::keeps_pace(const SequenceState& sequence, std::uint64_t length) const {
  if (!sequence.transition || !sequence.transition->at_a_pace) return false;
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    const Pages& after = sequence.group_sides[group_side];
    if (sequence.transition->before[group_side] == after) continue;
    if (group_sides_[group_side].rule.sealed_pages(length) < after->sealed_pages) return false;
  }
  return true;
}

// Behind the page that is being sealed, both page tables are the same.
Result<SequenceState> Change::cut_at_a_pace(const SequenceState& sequence, std::uint64_t length) {
  const std::shared_ptr<Transition> transition = new_transition(sequence);
  auto next = cut(sequence, length);
  if (!next) return next;
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    const Pages& after = next->group_sides[group_side];
    Pages& before = transition->before[group_side];
    if (before == sequence.group_sides[group_side]) {
      before = after;
      continue;
    }
    auto shorter = std::make_shared<KvPages>(*before);
    const auto same = static_cast<std::ptrdiff_t>(after->sealed_pages - after->first_page);
    shorter->page_table.resize(static_cast<std::size_t>(same));
    shorter->page_table.insert(shorter->page_table.end(), after->page_table.begin() + same, after->page_table.end());
    before = std::move(shorter);
  }
  next->transition = transition;
  return next;
}

}  // namespace rota::cache
