#include "cache/change.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace rota::cache {
namespace {

std::string_view name(PoolKind kind) {
  switch (kind) {
    case PoolKind::sealed: return "sealed";
    case PoolKind::dense: return "dense";
    case PoolKind::sinks: return "sink";
    case PoolKind::step: return "step";
  }
  return "unknown";
}

template <class T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Change::Change(const Layout& layout, PagePools& pools, const std::vector<PageUse>& given)
    : layout_(layout),
      group_sides_(layout.group_sides),
      pools_(pools),
      given_before_(given),
      moves_(layout.group_sides.size()) {}

// Nobody has seen the pages that are still here, so they need not wait in the retire list.
Change::~Change() { pools_.release(taken_); }

std::optional<std::uint32_t> Change::retake(std::size_t group_side, PoolKind kind) {
  if (kind != PoolKind::dense && kind != PoolKind::step) return {};
  const auto fits = [&](const PageUse& use) {
    return use.group_side == group_side && use.kind == kind && !pools_[group_side].of(kind).is_shared(use.page);
  };
  if (const auto own = std::ranges::find_if(given_, fits); own != given_.end()) {
    const std::uint32_t page = own->page;
    given_.erase(own);
    return page;
  }
  const auto earlier = std::ranges::find_if(given_before_, [&](const PageUse& use) {
    return fits(use) && std::ranges::find(retaken_, use) == retaken_.end();
  });
  if (earlier == given_before_.end()) return {};
  retaken_.push_back(*earlier);
  return earlier->page;
}

Result<std::uint32_t> Change::take(std::size_t group_side, PoolKind kind) {
  if (const auto page = retake(group_side, kind)) return *page;
  PagePool& pool = pools_[group_side].of(kind);
  if (pool.free() == 0) {
    lacks_pages_ = true;
    return Error{Errc::out_of_pages, core::text("KvCache: all {} {} pages of {} are in use", pool.pages(), name(kind),
                                                group_sides_[group_side].name())};
  }
  pool.prepare_take();
  PageUse& use = taken_.emplace_back(PageUse{group_side, kind, 0});  // before take(): this may throw
  use.page = pool.take();
  return use.page;
}

Status Change::commit() {
  Status status = pools_.commit(taken_);
  lacks_pages_ |= !status && status.error().code == Errc::out_of_pages;
  return status;
}

// Sinks live as long as the sealed page 0.
void Change::give_sinks(std::size_t group_side, KvPages& pages) {
  if (pages.sinks) give(group_side, PoolKind::sinks, *pages.sinks);
  pages.sinks.reset();
}

// Adds the page to those of `next`.
Status Change::seal_page(std::size_t group_side, const MappedPage& page, KvPages& next, const SealMoves& moves) {
  const std::uint64_t sinks = page.logical == 0 ? group_sides_[group_side].rule.sinks : 0;
  auto to = take(group_side, PoolKind::sealed);
  if (!to) return to.error();
  if (sinks > 0 && !next.sinks) {  // else they are kept
    auto sink_page = take(group_side, PoolKind::sinks);
    if (!sink_page) return sink_page.error();
    moves.to_sinks.push_back({page.physical, *sink_page, sinks});
    next.sinks = *sink_page;
  }
  moves.seals.push_back({.from = page.physical, .to = *to, .sinks = sinks});
  next.page_table.push_back(*to);
  return {};
}

//   before   | s0 s1 s2 | d3 d4 d5 d6 |    s: sealed, d: dense
//   after       | s1 s2   s3 s4 | d5 d6 |
//
// s0 leaves the window and is given back. d3 and d4 are sealed into s3 and s4, and given back. A page that leaves is
// not sealed before, however long the sequence was idle.
Result<Pages> Change::settle(std::size_t group_side, const Pages& pages, const Due& due) {
  const PageRule& rule = group_sides_[group_side].rule;
  const std::uint64_t first = std::max(pages->first_page, first_page_of(rule, due.length, due.first_query));
  const std::uint64_t sealed = std::max({pages->sealed_pages, first, std::min(rule.sealed_pages(due.length), due.end)});
  if (first == pages->first_page && sealed == pages->sealed_pages) return pages;

  auto next = std::make_shared<KvPages>(KvPages{first, sealed, {}, pages->sinks});
  Status status;
  const SealMoves moves{moves_[group_side].to_sinks, moves_[group_side].seals};
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical < first) {
      give(group_side, page.kind, page.physical);
    } else if (page.kind == PoolKind::sealed || page.logical >= sealed) {
      next->page_table.push_back(page.physical);
    } else if (status.ok()) {
      status = seal_page(group_side, page, *next, moves);
      give(group_side, PoolKind::dense, page.physical);
    }
  });
  if (!status) return status.error();
  if (rule.loses_sinks(first)) give_sinks(group_side, *next);
  return Pages(std::move(next));
}

// New pages are dense. The last page of a settled sequence, if not full, is the sequence's own (see fork), so that new
// tokens may go there.
Result<Pages> Change::extend(std::size_t group_side, const Pages& pages, std::uint64_t length) {
  if (group_sides_[group_side].in_keys) return pages;
  const std::uint64_t wanted = group_sides_[group_side].rule.pages(length) - pages->first_page;
  if (wanted <= pages->page_table.size()) return pages;
  auto next = std::make_shared<KvPages>(*pages);
  next->page_table.reserve(wanted);
  while (next->page_table.size() < wanted) {
    auto page = take(group_side, PoolKind::dense);
    if (!page) return page.error();
    next->page_table.push_back(*page);
  }
  return Pages(std::move(next));
}

// Whether the pages that a shorter sequence sees are there.
Status Change::check_window(std::size_t group_side, const KvPages& pages, std::uint64_t length) const {
  const PageRule& rule = group_sides_[group_side].rule;
  if (length == 0 || rule.first_seen_page(length - 1) >= pages.first_page) return {};
  const std::uint64_t kept_from = pages.first_page * rule.page;
  return core::refuse({"KvCache::truncate", {"length"}}, length,
                      "0, or at least {}: {} have lost what lies before position {}",
                      kept_from + rule.window.value_or(0), group_sides_[group_side].name(), kept_from);
}

// Pages before `last` stay, pages after it are given back. `last` itself must be dense and the sequence's own from now
// on, since the next tokens are written there:
//
//   dense, not shared   stays
//   dense, shared       its first `rest` tokens are copied
//   sealed              its first `rest` tokens are restored, with the codec's error; sinks come back exactly
//   rest == 0           is given back, too
Result<Pages> Change::truncate(std::size_t group_side, const Pages& pages, std::uint64_t length) {
  const PageRule& rule = group_sides_[group_side].rule;
  if (Status status = check_window(group_side, *pages, length); !status) return status.error();
  auto next = std::make_shared<KvPages>(KvPages{.sinks = pages->sinks});
  const std::uint64_t last = length / rule.page;  // the page that is not full any more, or is gone
  const std::uint64_t rest = length % rule.page;
  if (length > 0) {
    next->first_page = pages->first_page;
    next->sealed_pages = std::min(pages->sealed_pages, last);
  }
  const auto open_page = [&](const MappedPage& page) -> Status {
    const bool dense = page.kind == PoolKind::dense;
    auto to = dense ? own_page(group_side, page.physical, rest, moves_[group_side]) : take(group_side, PoolKind::dense);
    if (!to) return to.error();
    next->page_table.push_back(*to);
    if (dense && *to == page.physical) return {};
    give(group_side, page.kind, page.physical);
    if (dense) return {};
    moves_[group_side].unseals.push_back({.from = page.physical, .to = *to, .tokens = rest});
    if (last == 0 && next->sinks) {
      moves_[group_side].from_sinks.push_back({*next->sinks, *to, std::min(rule.sinks, rest)});
    }
    return {};
  };
  // What is given may be taken for `last`.
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical > last || (page.logical == last && rest == 0)) give(group_side, page.kind, page.physical);
  });
  Status status;
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical < last) {
      next->page_table.push_back(page.physical);
    } else if (page.logical == last && rest > 0) {
      status = open_page(page);
    }
  });
  if (!status) return status.error();
  if (rule.keeps_sinks ? length == 0 : last == 0) give_sinks(group_side, *next);
  if (next->sinks && length < rule.sinks && pools_[group_side].of(PoolKind::sinks).is_shared(*next->sinks)) {
    give(group_side, PoolKind::sinks, *next->sinks);
    if (status = own_sinks(group_side, *next, length); !status) return status.error();
  }
  return Pages(std::move(next));
}

// Both sequences use the full pages: these are written again only after a truncation, which copies a page that is
// shared. The page that is not full is copied now, since each sequence writes into its own.
Result<Pages> Change::fork(std::size_t group_side, const Pages& pages, std::uint64_t length) {
  const PageRule& rule = group_sides_[group_side].rule;
  auto next = std::make_shared<KvPages>(*pages);
  const std::uint64_t rest = length % rule.page;
  if (rest > 0) {
    const std::uint32_t open = next->page_table.back();
    auto to = take(group_side, PoolKind::dense);
    if (!to) return to.error();
    moves_[group_side].copies.push_back({open, *to, rest});
    next->page_table.back() = *to;
  }
  const auto share = [&](PoolKind kind, std::uint32_t page) {
    taken_.push_back({group_side, kind, page});  // before share(): this may throw
    pools_[group_side].of(kind).share(page);
  };
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical != length / rule.page) share(page.kind, page.physical);
  });
  if (next->sinks && rule.keeps_sinks && length < rule.sinks) {
    if (Status status = own_sinks(group_side, *next, length); !status) return status.error();
  } else if (next->sinks) {
    share(PoolKind::sinks, *next->sinks);
  }
  return Pages(std::move(next));
}

// The sequence with `length` tokens and what each(group_side, pages) -> Result<Pages> makes of its pages. It is moved
// from one to the next: a step of many sequences allocates little.
template <class Each>
Result<SequenceState> Change::each_group_side(SequenceState sequence, std::uint64_t length, const Each& each) {
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    if (group_sides_[group_side].in_keys) continue;
    auto pages = each(group_side, sequence.group_sides[group_side]);
    if (!pages) return pages.error();
    sequence.group_sides[group_side] = std::move(pages).value();
  }
  sequence.length = length;
  sequence.transition.reset();
  return sequence;
}

Result<SequenceState> Change::settled(SequenceState sequence, std::uint64_t first_query) {
  const std::uint64_t length = sequence.length;
  return each_group_side(std::move(sequence), length, [&](std::size_t group_side, const Pages& pages) {
    return settle(group_side, pages, {length, first_query, group_sides_[group_side].rule.pages(length)});
  });
}

// Kept sinks have their page before the first token comes.
Status Change::begin_sinks(SequenceState& sequence) {
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    if (!group_sides_[group_side].rule.keeps_sinks || sequence.group_sides[group_side]->sinks) continue;
    auto page = take(group_side, PoolKind::sinks);
    if (!page) return page.error();
    auto pages = std::make_shared<KvPages>(*sequence.group_sides[group_side]);
    pages->sinks = *page;
    sequence.group_sides[group_side] = std::move(pages);
  }
  return {};
}

// While some of the kept sinks are still to come, they are the sequence's own. Precondition: `pages` has some.
Status Change::own_sinks(std::size_t group_side, KvPages& pages, std::uint64_t length) {
  auto own = take(group_side, PoolKind::sinks);
  if (!own) return own.error();
  moves_[group_side].sink_copies.push_back({pages.sinks.value_or(0), *own, length});
  pages.sinks = *own;
  return {};
}

Result<SequenceState> Change::extended(SequenceState sequence, std::uint64_t tokens) {
  const std::uint64_t before = sequence.length;
  if (before == 0) {
    if (Status status = begin_sinks(sequence); !status) return status.error();
  }
  const std::uint64_t length = before + tokens;
  const bool paced = std::ranges::any_of(group_sides_, [](const GroupSide& side) { return side.rule.within > 0; });
  if (paced && !is_long(sequence, length)) return extended_at_a_pace(std::move(sequence), length);
  auto settled = this->settled(completed(std::move(sequence)), before);
  return settled ? extended_at_once(std::move(settled).value(), length) : settled;
}

Result<SequenceState> Change::extended_at_once(SequenceState settled, std::uint64_t length) {
  bool in_turn = false;
  auto next = each_group_side(std::move(settled), length, [&](std::size_t group_side, const Pages& pages) {
    const bool waits = wants_transition(group_side, *pages, length);
    in_turn |= waits;
    return waits ? Result<Pages>(pages) : extend(group_side, pages, length);
  });
  if (!next || !in_turn) return next;
  next->transition = new_transition(*next);
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    if (!wants_transition(group_side, *next->group_sides[group_side], length)) continue;
    if (Status status = extend_in_turn(group_side, *next); !status) return status.error();
  }
  return next;
}

Result<SequenceState> Change::forked(const SequenceState& settled) {
  return each_group_side(settled, settled.length, [&](std::size_t group_side, const Pages& pages) {
    return fork(group_side, pages, settled.length);
  });
}

//   before   | s0 s1 s2 |                 of a new sequence: nothing
//   after    | s0 s1 s2   s3 s4 | d5 |    or, with a window, | s3 s4 | d5 |
Result<Pages> Change::load(std::size_t group_side, const Pages& pages, std::uint64_t length, const LoadedSide& side) {
  const PageRule& rule = group_sides_[group_side].rule;
  const std::uint64_t old_end = pages->first_page + pages->page_table.size();
  const std::uint64_t first = std::max(pages->first_page, side.first_page);
  auto next = std::make_shared<KvPages>(KvPages{first, std::max(side.sealed_pages, first), {}, pages->sinks});
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical >= first) next->page_table.push_back(page.physical);
  });
  for (std::uint64_t page = std::max(first, old_end); page < rule.pages(length); ++page) {
    auto to = take(group_side, page < side.sealed_pages ? PoolKind::sealed : PoolKind::dense);
    if (!to) return to.error();
    next->page_table.push_back(*to);
  }
  const bool has_sinks = rule.keeps_sinks ? length > 0 : first == 0 && side.sealed_pages > 0;
  if (!next->sinks && rule.sinks > 0 && has_sinks) {
    auto sinks = take(group_side, PoolKind::sinks);
    if (!sinks) return sinks.error();
    next->sinks = *sinks;
  }
  // After all is taken: the sequence is as before until the host has written.
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical < first) give(group_side, page.kind, page.physical);
  });
  if (rule.loses_sinks(first)) give_sinks(group_side, *next);
  return Pages(std::move(next));
}

Result<SequenceState> Change::loaded(SequenceState sequence, std::uint64_t length, std::span<const LoadedSide> sides) {
  return each_group_side(std::move(sequence), length, [&](std::size_t group_side, const Pages& pages) {
    return load(group_side, pages, length, sides[group_side]);
  });
}

Result<SequenceState> Change::truncated(const SequenceState& sequence, std::uint64_t length,
                                        std::uint64_t first_query) {
  return each_group_side(sequence, length, [&](std::size_t group_side, const Pages& pages) -> Result<Pages> {
    // The newest page that is due has its time, if it is sealed at a pace.
    const PageRule& rule = group_sides_[group_side].rule;
    const std::uint64_t due = rule.sealed_pages(sequence.length);
    const std::uint64_t end = std::min(rule.pages(length), rule.within > 0 && due > 0 ? due - 1 : due);
    auto settled = settle(group_side, pages, {sequence.length, first_query, end});
    if (!settled) return settled;
    return truncate(group_side, *settled, length);
  });
}

Result<SequenceState> Change::cut(const SequenceState& sequence, std::uint64_t length) {
  return each_group_side(sequence, length, [&](std::size_t group_side, const Pages& pages) {
    return truncate(group_side, pages, length);
  });
}

Result<SequenceState> Change::without_step(const SequenceState& sequence) {
  return each_group_side(sequence, sequence.step_begin,
                         [&](std::size_t group_side, const Pages&) { return without_step(group_side, sequence); });
}

MoveCounts Change::counts() const noexcept {
  MoveCounts sum = in_layers_;
  for (std::size_t group_side = 0; group_side < moves_.size(); ++group_side) {
    const Moves& moves = moves_[group_side];
    sum += {.seals = moves.seals.size(),
            .unseals = moves.unseals.size(),
            .copied_bytes = moves.copied_slots() * group_sides_[group_side].slot_bytes()};
  }
  return sum;
}

// Reserves first, so that nothing throws while pages move from one list to the other. Its moves in single layers come
// after this one's, whose pages they do not touch.
void Change::merge(Change&& other) {
  taken_.reserve(taken_.size() + other.taken_.size());
  given_.reserve(given_.size() + other.given_.size());
  retaken_.reserve(retaken_.size() + other.retaken_.size());
  for (std::size_t group_side = 0; group_side < moves_.size(); ++group_side) {
    moves_[group_side].add(other.moves_[group_side]);
  }
  for (const OneLayer& one : other.layer_moves_) moves_of(one.group_side, one.layer).add(one.moves);
  move_to_end(done_, other.done_);
  in_layers_ += other.in_layers_;
  move_to_end(retaken_, other.retaken_);
  move_to_end(given_, other.given_);
  move_to_end(taken_, other.taken_);
  other.taken_.clear();
}

}  // namespace rota::cache
