// What software_metal.h sets, as the objects of this folder ask for it.

#pragma once

#include "software_metal.h"

namespace rota::test::metal {

// True once for each fail_next(fault).
bool take_fault(Fault fault);
bool take_allocation_fault();
bool take_barrier_fault();
unsigned device_count();
void add_resident(long allocations);

// Blocks while a Hold lives, then for Options::start_delay.
void wait_for_start();

// A member of each object that is counted.
void count(Kind kind, int by);
template <Kind kKind>
struct Counted {
  Counted() { count(kKind, 1); }
  ~Counted() { count(kKind, -1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

}  // namespace rota::test::metal
