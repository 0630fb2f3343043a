#include "backend/cpu/sparse_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "core/error.h"

namespace rota::cpu {
namespace {

// Whether the system counts what a process may use, and not what it uses.
bool counts_strictly() noexcept {
  rlimit data{};
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY) return true;
  const int file = ::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char never = '0';
  const bool is_read = read(file, &never, 1) == 1;
  close(file);
  return is_read && never == '2';
}

// Without memory behind them. A huge page would take memory for many, and make a step that first touches it much longer
// than others.
void* map_addresses(std::byte* at, std::uint64_t bytes, bool strictly) noexcept {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const int fixed = at != nullptr ? MAP_FIXED : 0;
  void* const mapped = mmap(at, bytes, strictly ? PROT_READ : PROT_READ | PROT_WRITE, kFlags | fixed, -1, 0);
#if defined(MADV_NOHUGEPAGE)
  if (mapped != MAP_FAILED) madvise(mapped, bytes, MADV_NOHUGEPAGE);
#endif
  return mapped;
}

std::uint64_t block_bytes() noexcept {
  return std::max(runtime::kSparseBlockBytes, static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

SparseMemory::SparseMemory(std::uint64_t bytes, const Mapped& mapped) noexcept
    : Memory(bytes, mapped.begin), mapped_(mapped), blocks_(block_bytes()) {}

SparseMemory::~SparseMemory() { munmap(mapped_.begin, mapped_.bytes); }

Result<std::shared_ptr<SparseMemory>> SparseMemory::reserve(std::uint64_t bytes) {
  const std::uint64_t rounded = core::round_up(bytes, block_bytes());
  const bool strictly = counts_strictly();
  void* const mapped = map_addresses(nullptr, rounded, strictly);
  if (mapped == MAP_FAILED) {
    return Error{Errc::out_of_memory, core::text("reserve: the system refuses addresses for {} bytes to cpu", bytes)};
  }
  auto* const begin = static_cast<std::byte*>(mapped);
  auto* const memory = new (std::nothrow) SparseMemory(bytes, {begin, rounded, strictly});
  if (memory == nullptr) {
    munmap(begin, rounded);
    throw std::bad_alloc();
  }
  return std::shared_ptr<SparseMemory>(std::unique_ptr<SparseMemory>(memory));
}

bool SparseMemory::Blocks::map() const noexcept {
  return std::ranges::all_of(blocks, [&](const core::ByteRange& range) {
    if (!memory.mapped_.strictly) return true;
    return mprotect(memory.host() + range.begin, range.size(), PROT_READ | PROT_WRITE) == 0;
  });
}

// Where it is counted strictly, only a new mapping in the old one's place ends the count. Elsewhere the mapping stays,
// because each change of its kind makes it two, and a process has few.
void SparseMemory::Blocks::unmap() const noexcept {
  for (const core::ByteRange& range : blocks) {
    std::byte* const begin = memory.host() + range.begin;
#if defined(__linux__)
    if (!memory.mapped_.strictly) {
      madvise(begin, range.size(), MADV_DONTNEED);
      continue;
    }
#endif
    map_addresses(begin, range.size(), memory.mapped_.strictly);
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
