#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// What a call was about; 0 is what does not apply.
struct TraceShape {
  std::uint64_t tokens = 0;     // that are stored, sealed or rotated; of attention, query tokens
  std::uint64_t heads = 0;      // of attention, query heads
  std::uint64_t dim = 0;        // of a head
  std::uint64_t keys = 0;       // of attention: of all sequences together
  std::uint64_t sequences = 0;  // of attention
};

// One command that has run. A call of an op is one or more of them. Times count from the zero of their own clock.
struct TraceEvent {
  std::string_view device;       // its id
  std::string_view op;           // the kernel: "attend_split"
  std::uint64_t submission = 0;  // rises from one to the next
  std::uint64_t command = 0;     // in the submission, from 0 on
  TraceShape shape = {};         // of the call
  std::uint64_t bytes = 0;       // between the first and the last that it may touch, of all that it was given
  std::chrono::nanoseconds host_begin{0}, host_time{0};  // std::steady_clock: recording the call, once per call
  std::chrono::nanoseconds submitted{0};                 // std::steady_clock
  std::chrono::nanoseconds device_begin{0},
      device_time{0};  // the device's clock; 0 if it tells none. CPU: as the host's
};

// Gets each command once it is known to have run: on a CPU from the thread that led it, on a GPU from one whose call of
// rota finds that out. It may be called from several threads at once, and must neither call rota nor throw.
using TraceSink = std::function<void(const TraceEvent&)>;

}  // namespace rota::inline ROTA_ABI
