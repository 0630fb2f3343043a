#pragma once

#include <map>
#include <span>

#include "core/range_set.h"
#include "runtime/command.h"

namespace rota::runtime {

// Decides where barriers stand: before a command that conflicts with one recorded since the last
// barrier, i.e. one of them writes and the spans of memory that they touch overlap.
class Hazards {
 public:
  // Takes the next command's bindings; true where a barrier must stand before it.
  bool needs_barrier(std::span<const Binding> bindings);

 private:
  struct Touched {
    core::RangeSet reads, writes;
  };
  std::map<const Memory*, Touched> since_barrier_;
};

}  // namespace rota::runtime
