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

struct Place {
  std::uint64_t page;
  PoolKind kind;
  std::uint32_t at;
};

template <class Visit>
void for_each_place(const KvPages& pages, const Visit& visit) {
  for (std::size_t i = 0; i < pages.places.size(); ++i) {
    const std::uint64_t page = pages.first_page + i;
    visit(Place{page, page < pages.sealed_pages ? PoolKind::sealed : PoolKind::dense, pages.places[i]});
  }
}

std::uint64_t first_page_of(const PageRule& rule, std::uint64_t length, std::uint64_t first_row) noexcept {
  return std::min(rule.first_page(length), rule.first_seen_page(first_row));
}

template <class T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

bool is_due(std::span<const Track> tracks, const Text& text, std::uint64_t first_row) noexcept {
  for (std::size_t track = 0; track < tracks.size(); ++track) {
    const PageRule& rule = tracks[track].rule;
    const KvPages& pages = *text.tracks[track];
    if (first_page_of(rule, text.length, first_row) > pages.first_page) return true;
    if (rule.sealed_pages(text.length) > pages.sealed_pages) return true;
  }
  return false;
}

void release(std::vector<TrackPools>& pools, std::span<const PageUse> uses) noexcept {
  for (const PageUse& use : uses) pools[use.track].of(use.kind).release(use.page);
}

std::vector<PageUse> uses_of(const Text& text) {
  std::vector<PageUse> uses;
  for (std::size_t track = 0; track < text.tracks.size(); ++track) {
    const KvPages& pages = *text.tracks[track];
    for_each_place(pages, [&](const Place& place) { uses.push_back({track, place.kind, place.at}); });
    if (pages.sinks) uses.push_back({track, PoolKind::sinks, *pages.sinks});
  }
  return uses;
}

Change::Change(std::span<const Track> tracks, std::vector<TrackPools>& pools)
    : tracks_(tracks), pools_(pools), moves_(tracks.size()) {}

Change::~Change() { release(pools_, taken_); }

Result<std::uint32_t> Change::take(std::size_t track, PoolKind kind) {
  PagePool& pool = pools_[track].of(kind);
  if (pool.free() == 0) {
    lacks_pages_ = true;
    return Error{Errc::out_of_pages, core::text("KvCache: all {} {} pages of {} are in use", pool.pages(), name(kind),
                                                tracks_[track].name())};
  }
  pool.prepare_take();
  PageUse& use = taken_.emplace_back(PageUse{track, kind, 0});  // first, since this may throw
  use.page = pool.take();
  return use.page;
}

void Change::give_sinks(std::size_t track, KvPages& pages) {
  if (pages.sinks) give(track, PoolKind::sinks, *pages.sinks);
  pages.sinks.reset();
}

Result<Pages> Change::settle(std::size_t track, const Pages& pages, const Due& due) {
  const PageRule& rule = tracks_[track].rule;
  const std::uint64_t first = std::max(pages->first_page, first_page_of(rule, due.length, due.first_row));
  const std::uint64_t sealed = std::max({pages->sealed_pages, first, std::min(rule.sealed_pages(due.length), due.end)});
  if (first == pages->first_page && sealed == pages->sealed_pages) return pages;

  auto next = std::make_shared<KvPages>(KvPages{first, sealed, {}, pages->sinks});
  Status status;
  const auto seal_page = [&](const Place& place) -> Status {
    auto to = take(track, PoolKind::sealed);
    if (!to) return to.error();
    const bool has_sinks = place.page == 0 && rule.sinks > 0;
    if (has_sinks) {
      auto sinks = take(track, PoolKind::sinks);
      if (!sinks) return sinks.error();
      moves_[track].to_sinks.push_back({place.at, *sinks, rule.sinks});
      next->sinks = *sinks;
    }
    moves_[track].seals.push_back({.from = place.at, .to = *to, .sinks = has_sinks ? rule.sinks : 0});
    give(track, PoolKind::dense, place.at);
    next->places.push_back(*to);
    return {};
  };
  for_each_place(*pages, [&](const Place& place) {
    if (place.page < first) {
      give(track, place.kind, place.at);
    } else if (place.kind == PoolKind::sealed || place.page >= sealed) {
      next->places.push_back(place.at);
    } else if (status.ok()) {
      status = seal_page(place);
    }
  });
  if (!status) return status.error();
  if (first > 0) give_sinks(track, *next);
  return Pages(std::move(next));
}

Result<Pages> Change::extend(std::size_t track, const Pages& pages, std::uint64_t length) {
  const std::uint64_t wanted = tracks_[track].rule.pages(length) - pages->first_page;
  if (wanted <= pages->places.size()) return pages;
  auto next = std::make_shared<KvPages>(*pages);
  next->places.reserve(wanted);
  while (next->places.size() < wanted) {
    auto page = take(track, PoolKind::dense);
    if (!page) return page.error();
    next->places.push_back(*page);
  }
  return Pages(std::move(next));
}

Result<Pages> Change::truncate(std::size_t track, const Pages& pages, std::uint64_t length) {
  const PageRule& rule = tracks_[track].rule;
  if (length > 0 && rule.first_seen_page(length - 1) < pages->first_page) {
    const std::uint64_t kept_from = pages->first_page * rule.page;
    return core::refuse({"KvCache::truncate", {"length"}}, length,
                        "0, or at least {}: {} have lost what lies before position {}",
                        kept_from + rule.window.value_or(0), tracks_[track].name(), kept_from);
  }
  auto next = std::make_shared<KvPages>(KvPages{.sinks = pages->sinks});
  const std::uint64_t last = length / rule.page;  // the page that is not full any more, or is gone
  const std::uint64_t rest = length % rule.page;
  if (length > 0) {
    next->first_page = pages->first_page;
    next->sealed_pages = std::min(pages->sealed_pages, last);
  }
  const auto open_page = [&](const Place& place) -> Status {
    const bool shared = place.kind == PoolKind::dense && pools_[track].of(PoolKind::dense).is_shared(place.at);
    if (place.kind == PoolKind::dense && !shared) {
      next->places.push_back(place.at);
      return {};
    }
    auto to = take(track, PoolKind::dense);
    if (!to) return to.error();
    if (shared) {
      moves_[track].copies.push_back({place.at, *to, rest});
    } else {
      moves_[track].unseals.push_back({.from = place.at, .to = *to, .tokens = rest});
      if (last == 0 && next->sinks) moves_[track].from_sinks.push_back({*next->sinks, *to, std::min(rule.sinks, rest)});
    }
    give(track, place.kind, place.at);
    next->places.push_back(*to);
    return {};
  };
  Status status;
  for_each_place(*pages, [&](const Place& place) {
    if (place.page < last) {
      next->places.push_back(place.at);
    } else if (place.page > last || rest == 0) {
      give(track, place.kind, place.at);
    } else if (status.ok()) {
      status = open_page(place);
    }
  });
  if (!status) return status.error();
  if (last == 0) give_sinks(track, *next);
  return Pages(std::move(next));
}

Result<Pages> Change::fork(std::size_t track, const Pages& pages, std::uint64_t length) {
  const PageRule& rule = tracks_[track].rule;
  auto next = std::make_shared<KvPages>(*pages);
  const std::uint64_t rest = length % rule.page;
  if (rest > 0) {
    const std::uint32_t open = next->places.back();
    auto to = take(track, PoolKind::dense);
    if (!to) return to.error();
    moves_[track].copies.push_back({open, *to, rest});
    next->places.back() = *to;
  }
  const auto share = [&](PoolKind kind, std::uint32_t page) {
    taken_.push_back({track, kind, page});
    pools_[track].of(kind).share(page);
  };
  for_each_place(*pages, [&](const Place& place) {
    if (place.page != length / rule.page) share(place.kind, place.at);
  });
  if (const std::optional<std::uint32_t> sinks = next->sinks) share(PoolKind::sinks, *sinks);
  return Pages(std::move(next));
}

template <class Each>
Result<Text> Change::each_track(const Text& text, std::uint64_t length, const Each& each) {
  Text next{.length = length, .tracks = {}, .step = text.step, .step_begin = text.step_begin};
  next.tracks.reserve(tracks_.size());
  for (std::size_t track = 0; track < tracks_.size(); ++track) {
    auto pages = each(track, text.tracks[track]);
    if (!pages) return pages.error();
    next.tracks.push_back(std::move(pages).value());
  }
  return next;
}

Result<Text> Change::settled(const Text& text, std::uint64_t first_row) {
  return each_track(text, text.length, [&](std::size_t track, const Pages& pages) {
    return settle(track, pages, {text.length, first_row, tracks_[track].rule.pages(text.length)});
  });
}

Result<Text> Change::extended(const Text& settled, std::uint64_t tokens) {
  const std::uint64_t length = settled.length + tokens;
  return each_track(settled, length,
                    [&](std::size_t track, const Pages& pages) { return extend(track, pages, length); });
}

Result<Text> Change::forked(const Text& settled) {
  return each_track(settled, settled.length,
                    [&](std::size_t track, const Pages& pages) { return fork(track, pages, settled.length); });
}

Result<Text> Change::truncated(const Text& text, std::uint64_t length, std::uint64_t first_row) {
  return each_track(text, length, [&](std::size_t track, const Pages& pages) -> Result<Pages> {
    auto settled = settle(track, pages, {text.length, first_row, tracks_[track].rule.pages(length)});
    if (!settled) return settled;
    return truncate(track, *settled, length);
  });
}

Result<Text> Change::cut(const Text& text, std::uint64_t length) {
  return each_track(text, length,
                    [&](std::size_t track, const Pages& pages) { return truncate(track, pages, length); });
}

void Change::merge(Change&& other) {
  taken_.reserve(taken_.size() + other.taken_.size());
  given_.reserve(given_.size() + other.given_.size());
  for (std::size_t track = 0; track < moves_.size(); ++track) {
    Moves& to = moves_[track];
    Moves& from = other.moves_[track];
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
