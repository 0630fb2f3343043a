#include "runtime/upload_pool.h"

#include <algorithm>

namespace rota::runtime {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{256} << 10;
constexpr std::size_t kMaxIdleBlocks = 16;

}  // namespace

UploadPool::Blocks::Blocks() { idle.reserve(kMaxIdleBlocks); }

Result<std::shared_ptr<Memory>> UploadPool::take(Backend& backend, std::uint64_t bytes) {
  std::shared_ptr<Memory> block;
  if (bytes <= kBlockBytes) {
    const std::lock_guard lock(blocks_->mutex);
    if (!blocks_->idle.empty()) {
      block = std::move(blocks_->idle.back());
      blocks_->idle.pop_back();
    }
  }
  if (!block) {
    auto made = backend.allocate(std::max(bytes, kBlockBytes), MemoryKind::upload);
    if (!made) return made;
    block = std::move(made).value();
  }
  if (block->size_bytes() > kBlockBytes) return block;  // too large to keep

  Memory* const raw = block.get();
  return std::shared_ptr<Memory>(raw, [blocks = blocks_, block = std::move(block)](Memory*) mutable noexcept {
    const std::lock_guard lock(blocks->mutex);
    // Within its reserved room push_back cannot fail.
    if (blocks->idle.size() < blocks->idle.capacity()) blocks->idle.push_back(std::move(block));
  });
}

}  // namespace rota::runtime
