#include "backend/cpu/sparse_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "backend/cpu/huge_pages.h"
#include "core/error.h"

namespace rota::cpu {
namespace {

// Without memory behind them.
void* map_addresses(std::byte* at, std::uint64_t bytes, bool strictly) noexcept {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const int fixed = at != nullptr ? MAP_FIXED : 0;
  void* const mapped = mmap(at, bytes, strictly ? PROT_READ : PROT_READ | PROT_WRITE, kFlags | fixed, -1, 0);
#if defined(MADV_NOHUGEPAGE)
  // Else the first byte of a page could take memory for many.
  if (mapped != MAP_FAILED) madvise(mapped, bytes, MADV_NOHUGEPAGE);
#endif
  return mapped;
}

std::uint64_t block_bytes() noexcept {
  return std::max(runtime::kSparseBlockBytes, static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

SparseMemory::SparseMemory(std::uint64_t bytes, std::byte* host, Mapped mapped) noexcept
    : Memory(bytes, host), mapped_(mapped), blocks_(block_bytes()) {}

SparseMemory::~SparseMemory() { munmap(mapped_.begin, mapped_.bytes); }

Result<std::shared_ptr<SparseMemory>> SparseMemory::reserve(std::uint64_t bytes) {
  const std::uint64_t all = core::round_up(bytes, kHugePageBytes) + kHugePageBytes;
  bool strictly = false;
  void* mapped = map_addresses(nullptr, all, strictly);
  if (mapped == MAP_FAILED) mapped = map_addresses(nullptr, all, strictly = true);
  if (mapped == MAP_FAILED) {
    return Error{Errc::out_of_memory, core::text("reserve: the system refuses addresses for {} bytes to cpu", bytes)};
  }
  auto* const begin = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  std::byte* const host = begin + (core::round_up(address, kHugePageBytes) - address);
  auto* const memory = new (std::nothrow) SparseMemory(bytes, host, {begin, all, strictly});
  if (memory == nullptr) {
    munmap(begin, all);
    throw std::bad_alloc();
  }
  return std::shared_ptr<SparseMemory>(std::unique_ptr<SparseMemory>(memory));
}

bool SparseMemory::Blocks::map() const noexcept {
  return std::ranges::all_of(blocks, [&](const core::ByteRange& range) {
    std::byte* const begin = memory.host() + range.begin;
    if (memory.mapped_.strictly && mprotect(begin, range.size(), PROT_READ | PROT_WRITE) != 0) return false;
    wish_for_huge_pages(begin, range.size());
    return true;
  });
}

// A new mapping in the old one's place gives its memory back. If there is none, the old one stays for the next.
void SparseMemory::Blocks::unmap() const noexcept {
  for (const core::ByteRange& range : blocks) {
    map_addresses(memory.host() + range.begin, range.size(), memory.mapped_.strictly);
  }
}

Status SparseMemory::commit(std::span<const runtime::SparseRanges> parts) {
  std::vector<Blocks> missing;
  std::uint64_t bytes = 0;
  for (const runtime::SparseRanges& part : parts) {
    missing.push_back({of(part), of(part).blocks_.missing(part.ranges)});
    for (const core::ByteRange& range : missing.back().blocks) bytes += range.size();
  }
  if (!std::ranges::all_of(missing, &Blocks::map)) {
    std::ranges::for_each(missing, &Blocks::unmap);
    return Error{Errc::out_of_memory, core::text("the system refuses {} bytes to cpu", bytes)};
  }
  for (const runtime::SparseRanges& part : parts) of(part).blocks_.add(part.ranges);
  return {};
}

void SparseMemory::decommit(std::span<const runtime::SparseRanges> parts) {
  std::vector<Blocks> unused;
  for (const runtime::SparseRanges& part : parts) unused.push_back({of(part), of(part).blocks_.only_in(part.ranges)});
  for (const Blocks& blocks : unused) blocks.unmap();
  for (const runtime::SparseRanges& part : parts) of(part).blocks_.remove(part.ranges);
}

}  // namespace rota::cpu
