#include "runtime/block_pool.h"

#include <algorithm>
#include <bit>

namespace rota::runtime {
namespace {

constexpr std::size_t kMaxIdleBlocks = 16;

}  // namespace

BlockPool::Blocks::Blocks() { idle.reserve(kMaxIdleBlocks); }

Result<std::shared_ptr<Memory>> BlockPool::take(Backend& backend, std::uint64_t bytes) {
  std::shared_ptr<Memory> block;
  {
    const std::lock_guard lock(blocks_->mutex);
    const auto fits =
        std::ranges::find_if(blocks_->idle, [&](const auto& idle) { return idle->size_bytes() >= bytes; });
    if (fits != blocks_->idle.end()) {
      block = std::move(*fits);
      blocks_->idle.erase(fits);
    }
  }
  if (!block) {
    const bool kept = bytes <= shape_.most_kept_bytes;
    auto made = backend.allocate(kept ? std::bit_ceil(std::max(bytes, shape_.block_bytes)) : bytes, shape_.kind);
    if (!made) return made;
    block = std::move(made).value();
  }
  if (block->size_bytes() > shape_.most_kept_bytes) return block;

  Memory* const raw = block.get();
  return std::shared_ptr<Memory>(raw, [blocks = blocks_, block = std::move(block)](Memory*) mutable noexcept {
    const std::lock_guard lock(blocks->mutex);
    // Within its reserved room push_back cannot fail.
    if (blocks->idle.size() < blocks->idle.capacity()) blocks->idle.push_back(std::move(block));
  });
}

}  // namespace rota::runtime
