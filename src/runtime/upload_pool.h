#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/backend.h"

namespace rota::runtime {

// Memory through which encoders hand small data to kernels. A block returns by itself when the last
// command that uses it has finished.
class UploadPool {
 public:
  Result<std::shared_ptr<Memory>> take(Backend& backend, std::uint64_t bytes);

 private:
  struct Blocks {
    Blocks();

    std::mutex mutex;
    std::vector<std::shared_ptr<Memory>> idle;
  };
  std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
};

}  // namespace rota::runtime
