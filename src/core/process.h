#pragma once

#include <cstdint>

#include "core/callers_thread.h"

namespace rota::core {

// Rises in every child of fork(). A child has none of its parent's threads, and for good what mutexes they held.
std::uint64_t process_number() noexcept;

// Belongs to the process that made it.
class OfProcess {
 public:
  bool is_here() const noexcept { return made_in_ == process_number(); }

  // For an object of the parent's that can neither be used nor taken apart: it stays as it is, where leak checkers
  // look.
  void leave() const noexcept;

 private:
  const std::uint64_t made_in_ = process_number();
  mutable const OfProcess* next_left_ = nullptr;
};

// Deletes what this process made, and leaves what its parent made.
struct DeleteOrLeave {
  template <class Object>
  void operator()(Object* object) const noexcept {
    const NoCancellation whole;  // some wait
    if (object == nullptr || object->is_here()) {
      delete object;
    } else {
      object->leave();
    }
  }
};

}  // namespace rota::core
