// Runs dispatches: each thread of a threadgroup is a fiber, and one threadgroup runs after the other. An interval is
// what a threadgroup does between two barriers; intervals of all dispatches are numbered, in the order in which they
// run.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msl/rota/launch.h"
#include "order.h"
#include "software_metal.h"

namespace rota::test::metal {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostThreadgroupBytes = 32768;
constexpr unsigned kBufferCount = 31;

class Binary;

// What a kernel may touch through one of its parameters.
struct Binding {
  unsigned index;
  char* first;
  size_t bytes;
  bool constant;  // bytes of the encoder: no one else touches them
  bool tracked;   // what other encoders do with it is ordered
};

struct Dispatch {
  const Binary* binary;
  std::string kernel;
  unsigned groups[3];
  unsigned threads[3];
  std::vector<Binding> bindings;
};

// Returns what went wrong, or nothing. One dispatch at a time: the caller sees to it.
std::string run_dispatch(const Dispatch& dispatch, const History& history);

// The number of the latest interval.
uint32_t last_interval();

// Begins to count again if the numbers are about to end. True: all that was before is forgotten.
bool restart_intervals();

uint64_t dispatches_run();

}  // namespace rota::test::metal
