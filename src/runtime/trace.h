#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rota/trace.h"

namespace rota::runtime {

inline std::chrono::nanoseconds steady_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch());
}

// What is known of a command before it runs. Its names outlive it: a kernel's is a constant.
using TraceNote = TraceEvent;

// The commands of one batch, for a sink that wants to know when they ran.
class BatchTrace {
 public:
  BatchTrace(std::shared_ptr<const TraceSink> sink, std::string device, std::vector<TraceNote> notes)
      : sink_(std::move(sink)), device_(std::move(device)), notes_(std::move(notes)) {}

  // Before it is submitted.
  void number(std::uint64_t submission) noexcept {
    const std::chrono::nanoseconds now = steady_now();
    std::uint64_t command = 0;
    for (TraceNote& note : notes_) {
      note.submission = submission;
      note.submitted = now;
      note.command = command++;
    }
  }

  // A command has run, by the device's clock. Not inline: handlers of Objective-C++ do not know C++'s exceptions.
  void ran(std::size_t command, std::chrono::nanoseconds begin, std::chrono::nanoseconds time) const noexcept;

 private:
  std::shared_ptr<const TraceSink> sink_;
  std::string device_;
  std::vector<TraceNote> notes_;  // one per command
};

}  // namespace rota::runtime
