#include "watch.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "compile.h"
#include "hooks.h"
#include "traffic.h"

namespace rota::test::metal {

Watch g_watch;

namespace {

// Values of Word::writer and ::reader besides numbers of threads.
constexpr uint16_t kThreadMask = 0xfff;
constexpr uint16_t kMany = kThreadMask;
constexpr uint16_t kAtomic = 0x4000;  // a flag

enum class Access { read, write, atomic_read, atomic_write };

constexpr bool writes(Access access) { return access == Access::write || access == Access::atomic_write; }
constexpr bool is_atomic(Access access) { return access == Access::atomic_read || access == Access::atomic_write; }

uintptr_t first_of(const Binding& binding) { return reinterpret_cast<uintptr_t>(binding.first); }

const char* verb(Access access) { return writes(access) ? "writes" : "reads"; }

struct Place {
  uintptr_t address;
  size_t bytes;
  const Binding* binding;  // null: memory of the threadgroup
};

std::string describe(const Place& place) {
  if (place.binding == nullptr) {
    return "threadgroup memory at byte " + std::to_string(place.address - g_watch.threadgroup);
  }
  return "buffer " + std::to_string(place.binding->index) + " at byte " +
         std::to_string(place.address - first_of(*place.binding));
}

[[gnu::noinline, noreturn]] void conflict(Access access, const Place& place, const char* why) {
  report(running_thread() + " " + verb(access) + " " + describe(place) + ", " + why);
  stop_dispatch();
}

// The binding that the address most likely belongs to: the last that begins before it.
std::string guess(uintptr_t address) {
  const Binding* nearest = nullptr;
  for (const Binding& binding : g_watch.dispatch->bindings) {
    if (first_of(binding) > address || (nearest != nullptr && nearest->first > binding.first)) continue;
    nearest = &binding;
  }
  const uintptr_t unbound = (address - reinterpret_cast<uintptr_t>(g_watch.arena->unbound(0))) / Arena::kUnboundBytes;
  if (unbound < kBufferCount) return "buffer " + std::to_string(unbound) + ", which is not bound";
  if (nearest == nullptr) return "an address before all buffers";
  return "buffer " + std::to_string(nearest->index) + " at byte " + std::to_string(address - first_of(*nearest)) +
         ", out of bounds: it has " + std::to_string(nearest->bytes) + " bytes";
}

[[gnu::noinline, noreturn]] void out_of_bounds(Access access, uintptr_t address, size_t bytes) {
  report(running_thread() + " " + verb(access) + " " + std::to_string(bytes) + " bytes of " + guess(address));
  stop_dispatch();
}

[[gnu::noinline]] const Binding* find_binding(uintptr_t address, size_t bytes) {
  for (const Binding& binding : g_watch.dispatch->bindings) {
    const size_t offset = address - first_of(binding);
    if (offset < binding.bytes && bytes <= binding.bytes - offset) return &binding;
  }
  return nullptr;
}

// An access above the floor that conflicts with what the running thread does. In its own threadgroup it comes before
// that unless it is of the interval `now`.
struct Earlier {
  uint32_t interval;
  uint16_t thread;
  uint32_t now;
};

bool is_ordered(uint32_t interval, const Binding& binding) {
  const History& history = *g_watch.history;
  return history.is_before(interval) || (binding.tracked && history.is_of_another_encoder(interval));
}

[[gnu::noinline]] void check_order(const Earlier& earlier, Access access, const Place& place) {
  const Watch& w = g_watch;
  const uint32_t interval = earlier.interval;
  if (interval >= w.group_first) {
    if (interval != earlier.now || (earlier.thread & kThreadMask) == w.thread) return;
    conflict(access, place, "which another thread touches between the same barriers");
  }
  if (interval >= w.dispatch_first) conflict(access, place, "which another threadgroup of the dispatch touches");
  if (is_ordered(interval, *place.binding)) return;
  conflict(access, place, "which an earlier dispatch touches that no barrier or fence orders before this one");
}

template <Access kAccess>
inline void touch(Word& word, const Place& place) {
  const Watch& w = g_watch;
  if (word.write > w.floor && (!is_atomic(kAccess) || (word.writer & kAtomic) == 0)) {
    check_order({word.write, word.writer, w.device_interval}, kAccess, place);
  }
  if constexpr (writes(kAccess)) {
    // A read is over at any barrier: nothing has to become visible.
    if (word.read > w.floor) check_order({word.read, word.reader, w.interval}, kAccess, place);
    if (word.other_read > w.floor) check_order({word.other_read, kMany, w.interval}, kAccess, place);
    const bool shared =
        is_atomic(kAccess) && word.write == w.device_interval && (word.writer & kThreadMask) != w.thread;
    word.writer = static_cast<uint16_t>((shared ? kMany : w.thread) | (is_atomic(kAccess) ? kAtomic : 0));
    word.write = w.device_interval;
  } else if constexpr (kAccess == Access::read) {
    if (word.read == w.interval) {
      if (word.reader != w.thread) word.reader = kMany;
      return;
    }
    const bool is_other = word.read > w.floor && word.read < w.group_first;
    if (is_other && (word.other_read < w.dispatch_first && is_ordered(word.other_read, *place.binding))) {
      word.other_read = word.read;
    }
    word.read = w.interval;
    word.reader = w.thread;
  }
}

// Memory of the threadgroup. Between barriers of the threadgroup, barriers of a simdgroup order its lanes.
struct LocalWord {
  uint32_t write, read;
  uint16_t writer, reader;           // number of a thread, kMany, or kSimdgroup and the number of a simdgroup
  uint16_t write_epoch, read_epoch;  // of the writer's simdgroup
};

constexpr uint16_t kSimdgroup = 0x2000;

std::vector<LocalWord> g_local;
std::vector<bool> g_declared;  // of each byte of threadgroup memory: belongs to a variable

bool is_local_race(uint16_t other, uint16_t epoch) {
  const Watch& w = g_watch;
  const uint16_t who = other & static_cast<uint16_t>(~kAtomic);
  if (who == w.thread) return false;
  if (who == kMany) return true;
  const unsigned simdgroup = (who & kSimdgroup) != 0 ? who & kThreadMask : who / w.simd_width;
  return simdgroup != w.simdgroup || epoch == w.simd_epoch;
}

// Who has touched a word that `other` and now the running thread touch in one interval.
uint16_t joined(uint16_t other) {
  const Watch& w = g_watch;
  const uint16_t who = other & static_cast<uint16_t>(~kAtomic);
  if (who == w.thread) return who;
  const unsigned simdgroup = (who & kSimdgroup) != 0 ? who & kThreadMask : who / w.simd_width;
  if (who == kMany || simdgroup != w.simdgroup) return kMany;
  return static_cast<uint16_t>(kSimdgroup | simdgroup);
}

template <Access kAccess>
inline void touch_local(LocalWord& word, const Place& place) {
  const Watch& w = g_watch;
  const bool both_atomic = is_atomic(kAccess) && (word.writer & kAtomic) != 0;
  if (word.write == w.threadgroup_interval && !both_atomic && is_local_race(word.writer, word.write_epoch)) {
    conflict(kAccess, place, "a race: another thread writes it between the same barriers");
  }
  if constexpr (writes(kAccess)) {
    if (word.read == w.threadgroup_interval && is_local_race(word.reader, word.read_epoch)) {
      conflict(kAccess, place, "a race: another thread reads it between the same barriers");
    }
    const bool join = word.write == w.threadgroup_interval && is_atomic(kAccess);
    word.writer = static_cast<uint16_t>((join ? joined(word.writer) : w.thread) | (is_atomic(kAccess) ? kAtomic : 0));
    word.write = w.threadgroup_interval;
    word.write_epoch = w.simd_epoch;
  } else if constexpr (kAccess == Access::read) {
    word.reader = word.read == w.threadgroup_interval ? joined(word.reader) : w.thread;
    word.read = w.threadgroup_interval;
    word.read_epoch = w.simd_epoch;
  }
}

template <Access kAccess>
[[gnu::noinline]] void access_local(uintptr_t address, size_t bytes) {
  const size_t offset = address - g_watch.threadgroup;
  const size_t last = offset + bytes - 1;
  if (last >= g_watch.threadgroup_bytes || !g_declared[offset] || !g_declared[last]) {
    report(running_thread() + " " + verb(kAccess) + " threadgroup memory out of bounds of a variable");
    stop_dispatch();
  }
  const Place place{address, bytes, nullptr};
  for (size_t i = offset / 4; i <= last / 4; ++i) touch_local<kAccess>(g_local[i], place);
}

template <Access kAccess>
inline void access(const void* pointer, size_t bytes, const void* site) {
  Watch& w = g_watch;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address - w.stacks < w.stacks_bytes || bytes == 0) return;
  if (address - w.threadgroup < w.threadgroup_bytes) return access_local<kAccess>(address, bytes);
  const Binding*& cached = w.by_site[(reinterpret_cast<uintptr_t>(site) >> 2) % Watch::kSites];
  if (cached == nullptr || address - first_of(*cached) >= cached->bytes ||
      bytes > cached->bytes - (address - first_of(*cached))) [[unlikely]] {
    const Binding* found = find_binding(address, bytes);
    if (found == nullptr) {
      if (!writes(kAccess) && address - w.library < w.library_bytes) return;
      out_of_bounds(kAccess, address, bytes);
    }
    cached = found;
  }
  if (w.traffic) [[unlikely]]
    record_access({cached->index, address - first_of(*cached), address, bytes, writes(kAccess), site});
  if (cached->constant) {
    if (writes(kAccess)) conflict(kAccess, {address, bytes, cached}, "which holds constants");
    return;
  }
  const Place place{address, bytes, cached};
  Word* word = w.arena->word_of(address);
  Word* const last = w.arena->word_of(address + bytes - 1);
  for (; word <= last; ++word) touch<kAccess>(*word, place);
}

#define ROTA_ACCESS_HOOK(NAME, KIND, BYTES) \
  void hook_##NAME(const void* address) { access<Access::KIND>(address, BYTES, __builtin_return_address(0)); }
ROTA_ACCESS_HOOK(read1, read, 1)
ROTA_ACCESS_HOOK(read2, read, 2)
ROTA_ACCESS_HOOK(read4, read, 4)
ROTA_ACCESS_HOOK(read8, read, 8)
ROTA_ACCESS_HOOK(read16, read, 16)
ROTA_ACCESS_HOOK(write1, write, 1)
ROTA_ACCESS_HOOK(write2, write, 2)
ROTA_ACCESS_HOOK(write4, write, 4)
ROTA_ACCESS_HOOK(write8, write, 8)
ROTA_ACCESS_HOOK(write16, write, 16)
ROTA_ACCESS_HOOK(unaligned_read2, read, 2)
ROTA_ACCESS_HOOK(unaligned_read4, read, 4)
ROTA_ACCESS_HOOK(unaligned_read8, read, 8)
ROTA_ACCESS_HOOK(unaligned_read16, read, 16)
ROTA_ACCESS_HOOK(unaligned_write2, write, 2)
ROTA_ACCESS_HOOK(unaligned_write4, write, 4)
ROTA_ACCESS_HOOK(unaligned_write8, write, 8)
ROTA_ACCESS_HOOK(unaligned_write16, write, 16)
#undef ROTA_ACCESS_HOOK

void hook_read_range(const void* address, size_t bytes) {
  access<Access::read>(address, bytes, __builtin_return_address(0));
}
void hook_write_range(const void* address, size_t bytes) {
  access<Access::write>(address, bytes, __builtin_return_address(0));
}
void* hook_memcpy(void* to, const void* from, size_t bytes) {
  access<Access::read>(from, bytes, __builtin_return_address(0));
  access<Access::write>(to, bytes, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* hook_memmove(void* to, const void* from, size_t bytes) {
  access<Access::read>(from, bytes, __builtin_return_address(0));
  access<Access::write>(to, bytes, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* hook_memset(void* to, int value, size_t bytes) {
  access<Access::write>(to, bytes, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}
void hook_atomic(const void* address, size_t bytes, int kind) {
  if (kind == static_cast<int>(rota_msl::Atomic::read))
    return access<Access::atomic_read>(address, bytes, __builtin_return_address(0));
  access<Access::atomic_write>(address, bytes, __builtin_return_address(0));
}

}  // namespace

void start_watch() {
  g_watch.arena = &Arena::get();
  std::ranges::fill(g_watch.by_site, nullptr);
  const Binary& binary = *g_watch.dispatch->binary;
  g_watch.library = binary.first();
  g_watch.library_bytes = binary.last() - binary.first();
  const rota_msl::Program& program = binary.program();
  g_watch.threadgroup = reinterpret_cast<uintptr_t>(program.threadgroup_first);
  g_watch.threadgroup_bytes = static_cast<size_t>(program.threadgroup_last - program.threadgroup_first);
  if (g_local.size() * 4 <= g_watch.threadgroup_bytes) g_local.resize(g_watch.threadgroup_bytes / 4 + 1);
  g_declared.assign(g_watch.threadgroup_bytes, false);
  for (const rota_msl::Variable* each = program.variables_first; each != program.variables_last; ++each) {
    const size_t first = reinterpret_cast<uintptr_t>(each->first) - g_watch.threadgroup;
    std::fill_n(g_declared.begin() + static_cast<std::ptrdiff_t>(first), each->bytes, true);
  }
}

void fill_hooks(void** table) {
#define ROTA_SLOT(NAME) *table++ = reinterpret_cast<void*>(hook_##NAME);
  ROTA_MSL_ACCESS_HOOKS(ROTA_SLOT)
  ROTA_MSL_THREAD_HOOKS(ROTA_SLOT)
#undef ROTA_SLOT
}

}  // namespace rota::test::metal
