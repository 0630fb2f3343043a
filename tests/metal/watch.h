// Checks each access of a kernel's thread before it happens.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "arena.h"
#include "machine.h"

namespace rota::test::metal {

// Who runs, and against what its accesses are checked. The machine keeps it up to date.
struct Watch {
  uintptr_t stacks = 0;
  size_t stacks_bytes = 0;
  uintptr_t threadgroup = 0;
  size_t threadgroup_bytes = 0;
  uintptr_t library = 0;  // data of the kernel's binary: may be read
  size_t library_bytes = 0;

  uint16_t thread = 0;
  uint16_t simdgroup = 0;
  uint16_t simd_width = 0;
  uint16_t simd_epoch = 0;  // how often the thread's simdgroup has met at a simdgroup_barrier
  bool traffic = false;

  // Barriers order either kind of memory, so each has its own interval, beside the one that any barrier begins.
  uint32_t interval = 0;
  uint32_t device_interval = 0;
  uint32_t threadgroup_interval = 0;
  uint32_t group_first = 0;     // intervals from here on are of this threadgroup,
  uint32_t dispatch_first = 0;  // from here on of this dispatch,
  uint32_t floor = 0;           // up to here of dispatches that are over

  const Arena* arena = nullptr;
  const History* history = nullptr;
  const Dispatch* dispatch = nullptr;

  static constexpr size_t kSites = 64;
  const Binding* by_site[kSites] = {};  // the last binding that a place of the kernel's code touched
};

extern Watch g_watch;

// Before the first thread of a dispatch, after g_watch.dispatch is set.
void start_watch();

// A thread ends the dispatch in two steps, because it never runs again: no object may be alive at the second.
void report(std::string message);
[[noreturn]] void stop_dispatch();

// "thread 3 of threadgroup (1, 0, 0)"
std::string running_thread();

}  // namespace rota::test::metal
