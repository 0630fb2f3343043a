#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rota/trace.h"

namespace rota::tool {

// What devices tell of their commands, written as Chrome's trace format, which Perfetto opens.
class TraceFile {
 public:
  // For DeviceOptions::trace. It keeps the first million commands, and counts the others.
  TraceSink sink();

  // Fails where the file cannot be written, to its last byte. Says on stderr how many commands are not in it.
  void write(const std::string& path) const;

 private:
  struct Event {
    std::string device, op;
    TraceEvent said;  // but for its names
  };
  struct Events {
    std::mutex mutex;
    std::vector<Event> kept;
    std::uint64_t dropped = 0;
  };
  std::shared_ptr<Events> events_ = std::make_shared<Events>();
};

}  // namespace rota::tool
