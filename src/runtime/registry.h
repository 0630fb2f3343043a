#pragma once

#include <atomic>
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
  Result<std::shared_ptr<const Pipeline>> pipeline(Backend& backend, const Kernel& kernel, const Constants& constants);

 private:
  struct Entry {
    std::mutex building;
    std::shared_ptr<const Pipeline> pipeline;
    std::atomic<bool> built = false;  // then `pipeline` stays
  };
  std::mutex mutex_;
  std::map<std::pair<const Kernel*, Constants>, Entry> entries_;  // which never move
};

}  // namespace rota::runtime
