#include "runtime/trace.h"

#include "core/error.h"

namespace rota::runtime {

void BatchTrace::ran(std::size_t command, std::chrono::nanoseconds begin,
                     std::chrono::nanoseconds time) const noexcept {
  TraceEvent event = notes_[command];
  event.device = device_;
  event.device_begin = begin;
  event.device_time = time;
  static_cast<void>(core::guarded([&]() -> Status {  // what it throws is the caller's own mistake, and stays here
    (*sink_)(event);
    return {};
  }));
}

}  // namespace rota::runtime
