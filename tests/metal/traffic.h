// What a dispatch moves between buffers and threads.

#pragma once

#include <cstddef>
#include <cstdint>

#include "machine.h"

namespace rota::test::metal {

struct Touch {
  unsigned index;  // of the buffer
  size_t offset;   // in the binding
  uintptr_t address;
  size_t bytes;
  bool writes;
  const void* site;  // in the kernel's code
};

// Of the running thread.
void record_access(const Touch& touch);

void start_traffic(const Dispatch& dispatch);
// All threads have come to a barrier or ended: the accesses of lanes up to here are matched with each other.
void end_traffic_interval();
void end_traffic();

uint64_t accesses_recorded();

}  // namespace rota::test::metal
