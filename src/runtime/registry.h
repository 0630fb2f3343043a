#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/backend.h"

namespace rota::runtime {

// The pipelines of a device, by kernel and constants. Each is built once: threads that want the same one wait for it,
// others do not. A build that failed is tried again at the next call.
class Registry {
 public:
  Result<std::shared_ptr<Pipeline>> pipeline(Backend& backend, const Kernel& kernel, const Constants& constants);

 private:
  struct Entry {
    std::mutex building;
    std::shared_ptr<Pipeline> pipeline;
  };
  std::mutex mutex_;
  std::map<std::pair<const Kernel*, Constants>, std::shared_ptr<Entry>> entries_;
};

}  // namespace rota::runtime
