#include "arena.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "machine.h"

namespace rota::test::metal {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = size_t{256} << 30;
constexpr size_t kGap = 64 << 10;
constexpr size_t kLarge = 1 << 20;
constexpr size_t kRecordBytes = sizeof(Word) / sizeof(uint32_t);  // for each byte

std::mutex g_mutex;
size_t g_used = kGap;
std::map<size_t, std::vector<size_t>> g_free;  // offsets, by rounded size

size_t rounded(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* reserve(size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

}  // namespace

Arena& Arena::get() {
  static auto* const arena = new Arena();  // outlives the threads of queues
  return *arena;
}

Arena::Arena()
    : memory_(static_cast<char*>(reserve(kBytes, PROT_NONE))),
      unbound_(static_cast<char*>(reserve(kBufferCount * kUnboundBytes, PROT_NONE))),
      words_(static_cast<Word*>(reserve(kBytes * kRecordBytes, PROT_READ | PROT_WRITE))) {}

void* Arena::allocate(size_t bytes) {
  const size_t size = rounded(bytes);
  const std::lock_guard lock(g_mutex);
  size_t offset = 0;
  if (const auto found = g_free.find(size); found != g_free.end() && !found->second.empty()) {
    offset = found->second.back();
    found->second.pop_back();
  } else {
    if (size > kBytes - g_used || kBytes - g_used - size < kGap) return nullptr;
    offset = g_used;
    g_used += size + kGap;
  }
  void* memory = memory_ + offset;
  if (mprotect(memory, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  return memory;
}

void Arena::free(void* memory, size_t bytes) {
  const size_t size = rounded(bytes);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  madvise(memory, size, MADV_DONTNEED);
  mprotect(memory, size, PROT_NONE);
  // What is remembered of a buffer that has ended is older than all that may touch the next one here: it may stay.
  if (size >= kLarge) madvise(word_of(address), size * kRecordBytes, MADV_DONTNEED);
  const std::lock_guard lock(g_mutex);
  g_free[size].push_back(address - reinterpret_cast<uintptr_t>(memory_));
}

void Arena::forget() { madvise(words_, kBytes * kRecordBytes, MADV_DONTNEED); }

}  // namespace rota::test::metal
