#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/backend.h"

namespace rota::runtime {

// Blocks of memory for encoders: uploads, or scratch. A block returns to the pool when its last user, an encoder or a
// command in flight, lets go of it.
class BlockPool {
 public:
  struct Shape {
    MemoryKind kind;
    std::uint64_t block_bytes;      // of the smallest block
    std::uint64_t most_kept_bytes;  // larger blocks are freed instead of returning
  };
  explicit BlockPool(Shape shape) : shape_(shape) {}

  // A block of at least `bytes`.
  Result<std::shared_ptr<Memory>> take(Backend& backend, std::uint64_t bytes);

 private:
  struct Blocks {
    Blocks();

    std::mutex mutex;
    std::vector<std::shared_ptr<Memory>> idle;
  };
  Shape shape_;
  std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
};

}  // namespace rota::runtime
