#pragma once

#include <span>

#include "core/range_set.h"
#include "runtime/command.h"

namespace rota::runtime {

// Decides where barriers are needed: before a command that conflicts with one recorded since the last barrier. Two
// commands conflict if the bytes that they touch overlap and one of them writes there.
class Hazards {
 public:
  // Adds the next command by its bindings. Returns whether it needs a barrier before it.
  bool needs_barrier(std::span<const Binding> bindings);

 private:
  core::RangeSet reads_, writes_;  // since the last barrier
};

}  // namespace rota::runtime
