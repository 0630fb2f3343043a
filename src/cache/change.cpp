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
  }
  return "unknown";
}

// An entry of a page table.
struct MappedPage {
  std::uint64_t logical;  // holds the positions from logical * page on
  PoolKind kind;
  std::uint32_t physical;  // in the pool of that kind
};

template <class Visit>
void for_each_page(const KvPages& pages, const Visit& visit) {
  for (std::size_t i = 0; i < pages.page_table.size(); ++i) {
    const std::uint64_t logical = pages.first_page + i;
    visit(MappedPage{logical, logical < pages.sealed_pages ? PoolKind::sealed : PoolKind::dense, pages.page_table[i]});
  }
}

// Pages before it leave the window: neither the sequence, even without its tail, nor a query that may still come sees
// them.
std::uint64_t first_page_of(const PageRule& rule, std::uint64_t length, std::uint64_t first_query) noexcept {
  return std::min(rule.first_page(length), rule.first_seen_page(first_query));
}

template <class T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

bool is_due(std::span<const GroupSide> group_sides, const SequenceState& sequence, std::uint64_t first_query) noexcept {
  for (std::size_t group_side = 0; group_side < group_sides.size(); ++group_side) {
    const PageRule& rule = group_sides[group_side].rule;
    const KvPages& pages = *sequence.group_sides[group_side];
    if (first_page_of(rule, sequence.length, first_query) > pages.first_page) return true;
    if (rule.sealed_pages(sequence.length) > pages.sealed_pages) return true;
  }
  return false;
}

void release(std::vector<GroupSidePools>& pools, std::span<const PageUse> uses) noexcept {
  for (const PageUse& use : uses) pools[use.group_side].of(use.kind).release(use.page);
}

std::vector<PageUse> uses_of(const SequenceState& sequence) {
  std::vector<PageUse> uses;
  for (std::size_t group_side = 0; group_side < sequence.group_sides.size(); ++group_side) {
    const KvPages& pages = *sequence.group_sides[group_side];
    for_each_page(pages, [&](const MappedPage& page) { uses.push_back({group_side, page.kind, page.physical}); });
    if (pages.sinks) uses.push_back({group_side, PoolKind::sinks, *pages.sinks});
  }
  return uses;
}

Change::Change(std::span<const GroupSide> group_sides, std::vector<GroupSidePools>& pools)
    : group_sides_(group_sides), pools_(pools), moves_(group_sides.size()) {}

// Nobody has seen the pages that are still here, so they need not wait in the retire list.
Change::~Change() { release(pools_, taken_); }

Result<std::uint32_t> Change::take(std::size_t group_side, PoolKind kind) {
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

// Sinks live as long as the sealed page 0.
void Change::give_sinks(std::size_t group_side, KvPages& pages) {
  if (pages.sinks) give(group_side, PoolKind::sinks, *pages.sinks);
  pages.sinks.reset();
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
  const auto seal_page = [&](const MappedPage& page) -> Status {
    auto to = take(group_side, PoolKind::sealed);
    if (!to) return to.error();
    const bool has_sinks = page.logical == 0 && rule.sinks > 0;
    if (has_sinks) {
      auto sinks = take(group_side, PoolKind::sinks);
      if (!sinks) return sinks.error();
      moves_[group_side].to_sinks.push_back({page.physical, *sinks, rule.sinks});
      next->sinks = *sinks;
    }
    moves_[group_side].seals.push_back({.from = page.physical, .to = *to, .sinks = has_sinks ? rule.sinks : 0});
    give(group_side, PoolKind::dense, page.physical);
    next->page_table.push_back(*to);
    return {};
  };
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical < first) {
      give(group_side, page.kind, page.physical);
    } else if (page.kind == PoolKind::sealed || page.logical >= sealed) {
      next->page_table.push_back(page.physical);
    } else if (status.ok()) {
      status = seal_page(page);
    }
  });
  if (!status) return status.error();
  if (first > 0) give_sinks(group_side, *next);
  return Pages(std::move(next));
}

// New pages are dense. The last page of a settled sequence, if not full, is the sequence's own (see fork), so that new
// tokens may go there.
Result<Pages> Change::extend(std::size_t group_side, const Pages& pages, std::uint64_t length) {
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

// Pages before `last` stay, pages after it are given back. `last` itself must be dense and the sequence's own from now
// on, since the next tokens are written there:
//
//   dense, not shared   stays
//   dense, shared       its first `rest` tokens are copied
//   sealed              its first `rest` tokens are restored, with the codec's error; sinks come back exactly
//   rest == 0           is given back, too
Result<Pages> Change::truncate(std::size_t group_side, const Pages& pages, std::uint64_t length) {
  const PageRule& rule = group_sides_[group_side].rule;
  if (length > 0 && rule.first_seen_page(length - 1) < pages->first_page) {
    const std::uint64_t kept_from = pages->first_page * rule.page;
    return core::refuse({"KvCache::truncate", {"length"}}, length,
                        "0, or at least {}: {} have lost what lies before position {}",
                        kept_from + rule.window.value_or(0), group_sides_[group_side].name(), kept_from);
  }
  auto next = std::make_shared<KvPages>(KvPages{.sinks = pages->sinks});
  const std::uint64_t last = length / rule.page;  // the page that is not full any more, or is gone
  const std::uint64_t rest = length % rule.page;
  if (length > 0) {
    next->first_page = pages->first_page;
    next->sealed_pages = std::min(pages->sealed_pages, last);
  }
  const auto open_page = [&](const MappedPage& page) -> Status {
    const bool shared = page.kind == PoolKind::dense && pools_[group_side].of(PoolKind::dense).is_shared(page.physical);
    if (page.kind == PoolKind::dense && !shared) {
      next->page_table.push_back(page.physical);
      return {};
    }
    auto to = take(group_side, PoolKind::dense);
    if (!to) return to.error();
    if (shared) {
      moves_[group_side].copies.push_back({page.physical, *to, rest});
    } else {
      moves_[group_side].unseals.push_back({.from = page.physical, .to = *to, .tokens = rest});
      if (last == 0 && next->sinks)
        moves_[group_side].from_sinks.push_back({*next->sinks, *to, std::min(rule.sinks, rest)});
    }
    give(group_side, page.kind, page.physical);
    next->page_table.push_back(*to);
    return {};
  };
  Status status;
  for_each_page(*pages, [&](const MappedPage& page) {
    if (page.logical < last) {
      next->page_table.push_back(page.physical);
    } else if (page.logical > last || rest == 0) {
      give(group_side, page.kind, page.physical);
    } else if (status.ok()) {
      status = open_page(page);
    }
  });
  if (!status) return status.error();
  if (last == 0) give_sinks(group_side, *next);
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
  if (const std::optional<std::uint32_t> sinks = next->sinks) share(PoolKind::sinks, *sinks);
  return Pages(std::move(next));
}

// The sequence with `length` tokens and what each(group_side, pages) -> Result<Pages> makes of its pages.
template <class Each>
Result<SequenceState> Change::each_group_side(const SequenceState& sequence, std::uint64_t length, const Each& each) {
  SequenceState next{.length = length, .group_sides = {}, .step = sequence.step, .step_begin = sequence.step_begin};
  next.group_sides.reserve(group_sides_.size());
  for (std::size_t group_side = 0; group_side < group_sides_.size(); ++group_side) {
    auto pages = each(group_side, sequence.group_sides[group_side]);
    if (!pages) return pages.error();
    next.group_sides.push_back(std::move(pages).value());
  }
  return next;
}

Result<SequenceState> Change::settled(const SequenceState& sequence, std::uint64_t first_query) {
  return each_group_side(sequence, sequence.length, [&](std::size_t group_side, const Pages& pages) {
    return settle(group_side, pages,
                  {sequence.length, first_query, group_sides_[group_side].rule.pages(sequence.length)});
  });
}

Result<SequenceState> Change::extended(const SequenceState& settled, std::uint64_t tokens) {
  const std::uint64_t length = settled.length + tokens;
  return each_group_side(settled, length,
                         [&](std::size_t group_side, const Pages& pages) { return extend(group_side, pages, length); });
}

Result<SequenceState> Change::forked(const SequenceState& settled) {
  return each_group_side(settled, settled.length, [&](std::size_t group_side, const Pages& pages) {
    return fork(group_side, pages, settled.length);
  });
}

Result<SequenceState> Change::truncated(const SequenceState& sequence, std::uint64_t length,
                                        std::uint64_t first_query) {
  return each_group_side(sequence, length, [&](std::size_t group_side, const Pages& pages) -> Result<Pages> {
    auto settled =
        settle(group_side, pages, {sequence.length, first_query, group_sides_[group_side].rule.pages(length)});
    if (!settled) return settled;
    return truncate(group_side, *settled, length);
  });
}

Result<SequenceState> Change::cut(const SequenceState& sequence, std::uint64_t length) {
  return each_group_side(sequence, length, [&](std::size_t group_side, const Pages& pages) {
    return truncate(group_side, pages, length);
  });
}

// Reserves first, so that nothing throws while pages move from one list to the other.
void Change::merge(Change&& other) {
  taken_.reserve(taken_.size() + other.taken_.size());
  given_.reserve(given_.size() + other.given_.size());
  for (std::size_t group_side = 0; group_side < moves_.size(); ++group_side) {
    Moves& to = moves_[group_side];
    Moves& from = other.moves_[group_side];
    move_to_end(to.to_sinks, from.to_sinks);
    move_to_end(to.seals, from.seals);
    move_to_end(to.unseals, from.unseals);
    move_to_end(to.from_sinks, from.from_sinks);
    move_to_end(to.copies, from.copies);
  }
  move_to_end(given_, other.given_);
  move_to_end(taken_, other.taken_);
  other.taken_.clear();
}

}  // namespace rota::cache
