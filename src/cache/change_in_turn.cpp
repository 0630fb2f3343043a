#include <algorithm>

#include "cache/change.h"

// Changes of sequences whose layers go over to other pages one after the other. See Transition.

namespace rota::cache {

LayerMoves& Change::moves_of(std::size_t group_side, std::size_t layer) {
  const auto known = std::ranges::find_if(
      layer_moves_, [&](const OneLayer& one) { return one.group_side == group_side && one.layer == layer; });
  return known != layer_moves_.end() ? known->moves : layer_moves_.emplace_back(OneLayer{group_side, layer, {}}).moves;
}

void Change::finish_layer(const std::shared_ptr<Transition>& transition, std::size_t layer) {
  done_.push_back({transition, layer});
  const auto& [number, group, index] = layout_.layers[layer];
  for (const KvSide side : {KvSide::keys, KvSide::values}) {
    const std::size_t group_side = group_side_of(group, side);
    moves_of(group_side, index).add(transition->moves[group_side]);
  }
}

void Change::count_moves(std::size_t group_side, const LayerMoves& moves) {
  in_layers_ += {.seals = moves.seals(),
                 .unseals = moves.moves.unseals.size(),
                 .copied_bytes = moves.copied_slots() * group_sides_[group_side].slot_bytes()};
}

SequenceState Change::completed(SequenceState next) {
  if (!next.transition) return next;
  const Transition& transition = *next.transition;
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    if (!transition.done[layer].is_set()) finish_layer(next.transition, layer);
  }
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    count_moves(group_side, transition.moves[group_side]);
  }
  given_.insert(given_.end(), transition.leaving.begin(), transition.leaving.end());
  next.transition.reset();
  return next;
}

// A transition for the sequence alone: as it is, or one that has not begun. Marks of the encoder that records this
// change are marks of the new one, too.
std::shared_ptr<Transition> Change::new_transition(const SequenceState& sequence) {
  if (!sequence.transition) {
    return std::make_shared<Transition>(Transition{.at_a_pace = false,
                                                   .before = sequence.group_sides,
                                                   .leaving = {},
                                                   .moves = std::vector<LayerMoves>(group_sides_.size()),
                                                   .done = std::vector<LayerMark>(layout_.layers.size())});
  }
  auto next = std::make_shared<Transition>(*sequence.transition);
  for (std::size_t layer = 0; layer < next->done.size(); ++layer) {
    if (next->done[layer].recorded_in != nullptr) done_.push_back({next, layer});
  }
  return next;
}

// Whether the step needs pages that the sequence has neither before nor after it.
bool Change::wants_transition(std::size_t group_side, const KvPages& pages, std::uint64_t length) const {
  const PageRule& rule = group_sides_[group_side].rule;
  const std::uint64_t tokens = (pages.first_page + pages.page_table.size()) * rule.page;  // that have a page
  return layout_.order == LayerOrder::in_turn && rule.is_bounded() && rule.is_long(pages.sealed_pages, tokens, length);
}

// A sequence's page table while its step to `length` tokens lasts.
Result<Pages> Change::pages_in_step(std::size_t group_side, const KvPages& settled, std::uint64_t length) {
  const PageRule& rule = group_sides_[group_side].rule;
  auto before = std::make_shared<KvPages>(settled);
  const std::uint64_t sealed_entries = settled.sealed_pages - settled.first_page;
  const std::uint64_t dense_entries =
      sealed_entries + std::max(settled.page_table.size() - sealed_entries, rule.dense_pages(length));
  const std::uint64_t entries = rule.pages(length) - settled.first_page;
  while (before->page_table.size() < entries) {
    const bool of_step = before->page_table.size() >= dense_entries;
    if (of_step && !before->step_page) before->step_page = settled.first_page + before->page_table.size();
    auto page = take(group_side, of_step ? PoolKind::step : PoolKind::dense);
    if (!page) return page.error();
    before->page_table.push_back(*page);
  }
  return Pages(std::move(before));
}

// See Transition for a picture. The sequence has as many dense pages as before the step or after it, whichever are
// more. So there is room for what stays dense: pages whose tokens are sealed or leave. Only a fork may need others.
Status Change::extend_in_turn(std::size_t group_side, SequenceState& next) {
  const PageRule& rule = group_sides_[group_side].rule;
  Transition& transition = *next.transition;
  const KvPages& settled = *next.group_sides[group_side];
  auto made = pages_in_step(group_side, settled, next.length);
  if (!made) return made.error();
  const Pages before = std::move(made).value();
  const std::uint64_t first = std::max(settled.first_page, rule.first_page(next.length));
  const std::uint64_t sealed = std::max({settled.sealed_pages, first, rule.sealed_pages(next.length)});
  auto after = std::make_shared<KvPages>(KvPages{first, sealed, {}, settled.sinks});
  const auto leave = [&](PoolKind kind, std::uint32_t page) { transition.leaving.push_back({group_side, kind, page}); };
  std::vector<std::uint32_t> room;  // dense pages of tokens that do not stay dense, and that no other sequence has
  for_each_page(*before, [&](const MappedPage& page) {
    const bool stays = page.kind == PoolKind::sealed ? page.logical >= first : page.logical >= sealed;
    if (page.kind == PoolKind::dense && !stays && !pools_[group_side].of(page.kind).is_shared(page.physical)) {
      room.push_back(page.physical);
    } else if (page.kind == PoolKind::step || !stays) {
      leave(page.kind, page.physical);
    }
  });
  LayerMoves& moves = transition.moves[group_side];
  Status status;
  for_each_page(*before, [&](const MappedPage& page) {
    if (page.logical < first || !status.ok()) return;
    const bool of_step = page.kind == PoolKind::step;
    if (page.kind == PoolKind::sealed || (page.logical >= sealed && !of_step)) {
      after->page_table.push_back(page.physical);
    } else if (page.logical < sealed) {
      status = seal_page(group_side, page, *after,
                         of_step ? SealMoves{moves.step_to_sinks, moves.step_seals}
                                 : SealMoves{moves.moves.to_sinks, moves.moves.seals});
    } else {
      if (room.empty()) {
        auto other = take(group_side, PoolKind::dense);
        if (!other) return static_cast<void>(status = other.error());
        room.push_back(*other);
      }
      moves.step_copies.push_back(
          {page.physical, room.back(), std::min(rule.page, next.length - page.logical * rule.page)});
      after->page_table.push_back(room.back());
      room.pop_back();
    }
  });
  if (!status) return status;
  for (const std::uint32_t page : room) leave(PoolKind::dense, page);
  if (rule.loses_sinks(first) && after->sinks) {
    leave(PoolKind::sinks, *after->sinks);
    after->sinks.reset();
  }
  transition.before[group_side] = before;
  next.group_sides[group_side] = std::move(after);
  return {};
}

// The dense page itself, or another where it is shared, with its first tokens.
Result<std::uint32_t> Change::own_page(std::size_t group_side, std::uint32_t page, std::uint64_t tokens, Moves& moves) {
  if (!pools_[group_side].of(PoolKind::dense).is_shared(page)) return page;
  auto other = take(group_side, PoolKind::dense);
  if (other) moves.copies.push_back({page, *other, tokens});
  return other;
}

// Layers that are done have sealed pages where the others have dense ones, and all must be alike again:
//
//   done              | s0 s1 s2   s3 s4 s5 s6 | d7 |         the step began in page 4
//   not done          | s0 s1 s2 | d3 d4 | x5 x6 x7 |
//   without the step  | s0 s1 s2   s3 | d4 |                  d3 is sealed, s4 is restored
//
// Pages that were there before the step, and that it left dense, are where they were. The page where it began is not
// full, so that no other sequence has it; but while it is saved its tokens go to another.
Result<Pages> Change::without_step(std::size_t group_side, const SequenceState& sequence) {
  const std::uint64_t length = sequence.step_begin;
  const Transition& transition = *sequence.transition;
  const KvPages& before = *transition.before[group_side];
  const KvPages& after = *sequence.group_sides[group_side];
  if (&before == &after) return truncate(group_side, sequence.group_sides[group_side], length);
  if (Status status = check_window(group_side, after, length); !status) return status.error();
  const PageRule& rule = group_sides_[group_side].rule;
  const std::uint64_t last = length / rule.page, rest = length % rule.page;
  auto next = std::make_shared<KvPages>();
  LayerMoves if_done, if_not;
  if (length > 0) {
    next->first_page = after.first_page;
    next->sealed_pages = std::min(after.sealed_pages, last);
    const auto entry = [](const KvPages& pages, std::uint64_t page) {
      return pages.page_table[page - pages.first_page];
    };
    for (std::uint64_t page = next->first_page; page < last; ++page) {
      next->page_table.push_back(entry(after, page));
      if (page < before.sealed_pages || page >= next->sealed_pages) continue;
      const std::uint64_t sinks = page == 0 ? rule.sinks : 0;
      const ops::SlotCopy to_sinks{entry(before, page), after.sinks.value_or(0), sinks};
      if (sinks > 0 && !rule.keeps_sinks) if_not.moves.to_sinks.push_back(to_sinks);
      if_not.moves.seals.push_back({.from = entry(before, page), .to = entry(after, page), .sinks = sinks});
    }
    if (next->sealed_pages > 0 || rule.keeps_sinks) next->sinks = after.sinks;
    if (rest > 0) {
      const std::uint32_t was = entry(before, last);
      auto open = own_page(group_side, was, rest, if_not.moves);
      if (!open) return open.error();
      next->page_table.push_back(*open);
      if (last < after.sealed_pages) {
        if_done.moves.unseals.push_back({.from = entry(after, last), .to = *open, .tokens = rest});
        if (last == 0 && after.sinks) {
          if_done.moves.from_sinks.push_back({*after.sinks, *open, std::min(rule.sinks, rest)});
        }
      } else {
        if_done.moves.copies = if_not.moves.copies;
      }
    }
  }
  for (std::size_t layer = 0; layer < layout_.layers.size(); ++layer) {
    const auto& [number, group, index] = layout_.layers[layer];
    if (group != group_sides_[group_side].group) continue;
    moves_of(group_side, index).add(transition.done[layer].is_set() ? if_done : if_not);
  }
  count_moves(group_side, if_done);
  in_layers_.seals += if_not.seals();
  const auto give_if_left = [&](PoolKind kind, std::uint32_t page) {
    bool stays = kind == PoolKind::sinks && next->sinks == page;
    for_each_page(*next, [&](const MappedPage& kept) { stays |= kept.kind == kind && kept.physical == page; });
    if (!stays) give(group_side, kind, page);
  };
  for_each_page(after, [&](const MappedPage& page) { give_if_left(page.kind, page.physical); });
  if (after.sinks) give_if_left(PoolKind::sinks, *after.sinks);
  for (const PageUse& use : transition.leaving) {
    if (use.group_side == group_side) give_if_left(use.kind, use.page);
  }
  return Pages(std::move(next));
}

SequenceState Change::emptied(const SequenceState& sequence) {
  const std::vector<PageUse> uses = uses_of(sequence);
  given_.insert(given_.end(), uses.begin(), uses.end());
  return {.length = 0,
          .group_sides = std::vector<Pages>(group_sides_.size(), std::make_shared<const KvPages>()),
          .transition = {},
          .step = sequence.step,
          .step_begin = 0};
}

}  // namespace rota::cache
