#include "cache/page_pools.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace rota::cache {
namespace {

constexpr std::array kKinds{PoolKind::sealed, PoolKind::dense, PoolKind::sinks, PoolKind::step};

// Pages are free for a while once so many changes began and ended without them: a step of a prompt leaves what the next
// one takes again.
constexpr std::uint64_t kWhile = 64;

// A pool grows by this part of itself, at least by what is asked for, and keeps as much while it is used: few
// allocations, and little that is not used.
constexpr std::uint64_t kAheadPart = 16;

}  // namespace

PagePools::PagePools(runtime::Backend& backend, std::span<const GroupSide> group_sides,
                     std::span<const GroupSideMemory> memory)
    : backend_(backend), group_sides_(group_sides), memory_(memory) {
  for (std::size_t i = 0; i < group_sides.size(); ++i) {
    pools_.emplace_back(group_sides[i].memory,
                        memory[i].is_sparse() ? PagePool::Memory::as_needed : PagePool::Memory::at_once);
    is_sparse_ |= memory[i].is_sparse();
  }
}

void PagePools::release(std::span<const PageUse> uses) noexcept {
  for (const PageUse& use : uses) pools_[use.group_side].of(use.kind).release(use.page);
}

void PagePools::add(std::vector<Pages>& to, const Pages& page) {
  if (!to.empty() && to.back().is_before(page)) {
    to.back().end = page.end;
  } else {
    to.push_back(page);
  }
}

// A range for each page: neighbours that are committed together may be given back one by one.
std::vector<runtime::SparseRanges> PagePools::ranges_of(std::span<const Pages> pages) const {
  std::vector<runtime::SparseRanges> all;
  for (std::size_t i = 0; i < pages.size();) {
    const auto same_pool = [&](const Pages& other) { return other.is_of_pool(pages[i]); };
    const auto same = pages.subspan(
        i, static_cast<std::size_t>(std::ranges::find_if_not(pages.subspan(i), same_pool) - pages.begin()) - i);
    memory_[pages[i].group_side].for_each_memory(
        pages[i].kind, [&](const std::shared_ptr<runtime::Memory>& memory, std::uint64_t page_bytes) {
          runtime::SparseRanges& ranges = all.emplace_back(runtime::SparseRanges{memory, {}});
          for (const Pages& run : same) {
            for (std::uint64_t page = run.begin; page < run.end; ++page) {
              ranges.ranges.push_back({page * page_bytes, (page + 1) * page_bytes});
            }
          }
        });
    i += same.size();
  }
  return all;
}

Status PagePools::try_commit(std::span<const Pages> pages) {
  for (const Pages& run : pages) pool_of(run).know(run.end);
  if (Status status = backend_.commit(ranges_of(pages)); !status) return status;
  mark(pages, true);
  return {};
}

void PagePools::decommit(std::span<const Pages> pages) {
  backend_.decommit(ranges_of(pages));
  mark(pages, false);
}

void PagePools::mark(std::span<const Pages> pages, bool committed) noexcept {
  for (const Pages& run : pages) {
    for (std::uint64_t page = run.begin; page < run.end; ++page) pool_of(run).set_committed(page, committed);
  }
}

std::vector<PagePools::Pages> PagePools::missing(std::span<const Pages> wanted) const {
  std::vector<Pages> runs;
  for (const Pages& run : wanted) {
    for (std::uint64_t page = run.begin; page < run.end; ++page) {
      if (!pool_of(run).is_committed(page)) add(runs, {run.group_side, run.kind, page, page + 1});
    }
  }
  return runs;
}

// The same pages, and those that each pool will want next.
std::vector<PagePools::Pages> PagePools::with_more(std::span<const Pages> runs) const {
  std::vector<Pages> more(runs.begin(), runs.end());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const PagePool& pool = pool_of(runs[i]);
    const bool is_last = i + 1 == runs.size() || !runs[i + 1].is_of_pool(runs[i]);
    if (is_last) more[i].end = std::min(pool.pages(), runs[i].end + pool.committed() / kAheadPart);
  }
  return missing(more);
}

// Where there is no memory for more than is wanted, what is free elsewhere is given back first, as far as commands have
// ended: whoever asks for pages does not wait for the device.
Status PagePools::commit_wanted(std::span<const Pages> wanted, Ahead ahead) {
  const std::vector<Pages> at_first = missing(wanted);
  if (at_first.empty() || try_commit(ahead == Ahead::yes ? with_more(at_first) : at_first)) return {};
  for (int looks = 0; looks < 2; ++looks) look(Spare::none);
  const std::vector<Pages> lacking = missing(wanted);  // some may have been free themselves
  Status status = try_commit(lacking);
  if (status || status.error().code != Errc::out_of_memory) return status;
  std::uint64_t pages = 0, bytes = 0;
  for (const Pages& run : lacking) {
    pages += run.end - run.begin;
    bytes += (run.end - run.begin) * group_sides_[run.group_side].pool(run.kind).page_bytes;
  }
  return Error{Errc::out_of_pages,
               core::text("KvCache: no memory for {} more pages, {} bytes: {}", pages, bytes, status.error().message)};
}

Status PagePools::commit(std::span<const PageUse> uses) {
  std::vector<Pages> wanted;
  for (const PageUse& use : uses) {
    if (pools_[use.group_side].of(use.kind).is_committed(use.page)) continue;
    wanted.push_back({use.group_side, use.kind, use.page, use.page + std::uint64_t{1}});
  }
  const auto place = [](const Pages& page) { return std::tuple(page.group_side, page.kind, page.begin); };
  std::ranges::sort(wanted, {}, place);
  const auto twice = std::ranges::unique(wanted, {}, place);  // taken, and shared
  wanted.erase(twice.begin(), twice.end());
  return commit_wanted(wanted, Ahead::yes);
}

Status PagePools::reserve(std::span<const GroupSide> sizes) {
  const auto pages_of = [&](std::size_t i, PoolKind kind) { return sizes.empty() ? 0 : sizes[i].pool(kind).pages; };
  std::vector<Pages> wanted;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    for (const PoolKind kind : kKinds) wanted.push_back({i, kind, 0, pages_of(i, kind)});
  }
  if (Status status = commit_wanted(wanted, Ahead::no); !status) return status;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    for (const PoolKind kind : kKinds) pools_[i].of(kind).set_reserved(pages_of(i, kind));
  }
  return {};
}

std::vector<PagePools::Pages> PagePools::idle(Spare spare) {
  std::vector<Pages> runs;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    for (const PoolKind kind : kKinds) {
      PagePool& pool = pools_[i].of(kind);
      const std::uint64_t kept = spare == Spare::some ? pool.used() / kAheadPart : 0;
      for (const std::uint64_t page : pool.idle(kept)) add(runs, {i, kind, page, page + 1});
    }
  }
  return runs;
}

std::uint64_t PagePools::newest_ticket() const noexcept {
  std::uint64_t newest = 0;
  for (const GroupSideMemory& memory : memory_) newest = std::max(newest, memory.newest_ticket());
  return newest;
}

// A page that was free at the last look, and ever since, is named by no command that was submitted after that look. So
// the newest submission is noted before pages are.
void PagePools::look(Spare spare) {
  if (!is_sparse_) return;
  const std::uint64_t before = std::exchange(last_look_, newest_ticket());
  const std::vector<Pages> pages = idle(spare);
  if (pages.empty()) return;
  const auto ended = backend_.wait_for(before, std::chrono::nanoseconds::zero());
  if (ended && *ended) decommit(pages);
}

void PagePools::tend() {
  if (++changes_ < kWhile) return;
  changes_ = 0;
  look(Spare::some);
}

}  // namespace rota::cache
