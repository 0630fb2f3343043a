#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/vulkan/context.h"
#include "backend/vulkan/memory.h"
#include "runtime/backend.h"
#include "runtime/committed_blocks.h"

namespace rota::vk {

class SparseBuffer;

// The memory behind a device's sparse buffers, in blocks of equal size, which all of them share. A driver allows few
// allocations, so that blocks come in chunks: as many as a call lacks, freed when none of them is used.
//
//   chunk   [ # # . # ]  [ # # # # # # ]      #: behind a buffer, .: free, and taken before a new chunk is
//
// Blocks are bound by a queue, and calls return when that is done: what is submitted next finds them.
class SparseBlocks {
 public:
  explicit SparseBlocks(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  ~SparseBlocks();

  SparseBlocks(const SparseBlocks&) = delete;
  SparseBlocks& operator=(const SparseBlocks&) = delete;

  // See runtime::Backend.
  static Result<std::shared_ptr<SparseBuffer>> reserve(const std::shared_ptr<SparseBlocks>& blocks,
                                                       std::uint64_t bytes);
  std::uint64_t bytes_left() {
    const std::lock_guard lock(mutex_);
    return addresses_left();
  }
  Status commit(std::span<const runtime::SparseRanges> parts);
  void decommit(std::span<const runtime::SparseRanges> parts);

 private:
  friend class SparseBuffer;

  struct Chunk {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    std::uint64_t blocks = 0;
    std::vector<std::uint64_t> free = {};  // the last is taken first
  };
  struct Block {
    Chunk* chunk = nullptr;
    std::uint64_t index = 0;
  };
  // Blocks of one buffer, to be bound or unbound.
  struct Binding {
    SparseBuffer* buffer;
    std::vector<core::ByteRange> ranges;
    std::vector<VkSparseMemoryBind> binds = {};
  };

  // The sum of all sparse buffers has a limit.
  std::uint64_t addresses_left() const noexcept {
    const std::uint64_t all = context_->properties.limits.sparseAddressSpaceSize;
    return all - std::min(all, reserved_bytes_);
  }
  Status agree(const VkMemoryRequirements& needs);
  Result<std::vector<Block>> take(std::uint64_t count);
  Status add_chunk(std::uint64_t blocks);
  void give_back(const Block& block) noexcept;
  Status bind(std::span<const Binding> bindings);

  std::shared_ptr<Context> context_;
  std::mutex mutex_;  // of all that follows, and of calls that bind
  std::uint64_t reserved_bytes_ = 0, block_bytes_ = 0;
  std::uint32_t type_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  VkFence fence_ = VK_NULL_HANDLE;
};

class SparseBuffer final : public BufferMemory {
 public:
  SparseBuffer(std::uint64_t bytes, Handles handles, std::shared_ptr<SparseBlocks> from) noexcept;
  ~SparseBuffer() override;

 private:
  friend class SparseBlocks;

  std::shared_ptr<SparseBlocks> from_;
  runtime::CommittedBlocks committed_;
  std::uint64_t reserved_bytes_ = 0;
  std::vector<SparseBlocks::Block> behind_;  // each block up to the last that was ever bound; some without a chunk
};

}  // namespace rota::vk
