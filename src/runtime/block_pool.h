#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/backend.h"

namespace rota::runtime {

// Memory of one kind for encoders: what they hand to kernels, and what kernels hand to each other. A block returns by
// itself when the last command that uses it has finished.
class BlockPool {
 public:
  struct Shape {
    MemoryKind kind;
    std::uint64_t block_bytes;      // no block is smaller
    std::uint64_t most_kept_bytes;  // a larger block is not kept
  };
  explicit BlockPool(Shape shape) : shape_(shape) {}

  // A block of at least so many bytes.
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
