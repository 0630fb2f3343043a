#include "backend/vulkan/sparse.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace rota::vk {
namespace {

// A block that is used keeps its chunk, so that these are not too large; nor too many.
constexpr std::uint64_t kMostChunkBytes = 32U << 20;

SparseBuffer& buffer_of(const runtime::SparseRanges& part) { return static_cast<SparseBuffer&>(*part.memory); }

}  // namespace

SparseBuffer::SparseBuffer(std::uint64_t bytes, Handles handles, std::shared_ptr<SparseBlocks> from) noexcept
    : BufferMemory(bytes, std::move(handles)), from_(std::move(from)), committed_(from_->block_bytes_) {}

SparseBuffer::~SparseBuffer() {
  const std::lock_guard lock(from_->mutex_);
  from_->reserved_bytes_ -= reserved_bytes_;
  for (const SparseBlocks::Block& block : behind_) {
    if (block.chunk != nullptr) from_->give_back(block);
  }
}

SparseBlocks::~SparseBlocks() {
  for (const auto& chunk : chunks_) context_->vk.vkFreeMemory(context_->device, chunk->memory, nullptr);
  context_->vk.vkDestroyFence(context_->device, fence_, nullptr);
}

// All buffers are made alike, so that the first decides on the blocks.
Status SparseBlocks::agree(const VkMemoryRequirements& needs) {
  const std::lock_guard lock(mutex_);
  if (block_bytes_ == 0) {
    const auto type = choose_memory_type(context_->memory_properties, needs.memoryTypeBits, Use::device);
    if (!type) return context_->failed("reserve: no memory type", VK_ERROR_FEATURE_NOT_PRESENT);
    const VkFenceCreateInfo fence{.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    if (const VkResult result = context_->vk.vkCreateFence(context_->device, &fence, nullptr, &fence_);
        result != VK_SUCCESS) {
      return context_->failed("reserve: vkCreateFence", result);
    }
    type_ = *type;
    block_bytes_ = std::max<std::uint64_t>(needs.alignment, runtime::kSparseBlockBytes);
  }
  const bool fits = block_bytes_ % needs.alignment == 0 && needs.size % block_bytes_ == 0;
  if (fits && (needs.memoryTypeBits >> type_ & 1U) != 0) return {};
  return Error{Errc::unsupported, "reserve: the driver wants other blocks for this buffer than for those before"};
}

Result<std::shared_ptr<SparseBuffer>> SparseBlocks::reserve(const std::shared_ptr<SparseBlocks>& blocks,
                                                            std::uint64_t bytes) {
  BufferMemory::Handles handles(blocks->context_);
  auto needs = handles.make_sparse(core::round_up(bytes, runtime::kSparseBlockBytes));
  if (!needs) return needs.error();
  if (Status status = blocks->agree(*needs); !status) return status.error();
  auto made = std::make_shared<SparseBuffer>(bytes, std::move(handles), blocks);
  const std::lock_guard lock(blocks->mutex_);
  if (needs->size > blocks->addresses_left()) {
    return Error{Errc::out_of_memory, core::text("reserve: {} bytes of sparse buffers; the driver addresses {} more",
                                                 bytes, blocks->addresses_left())};
  }
  blocks->reserved_bytes_ += made->reserved_bytes_ = needs->size;
  return made;
}

Status SparseBlocks::add_chunk(std::uint64_t blocks) {
  auto chunk = std::make_unique<Chunk>(Chunk{.blocks = blocks});
  chunk->free.reserve(blocks);
  for (std::uint64_t index = blocks; index-- > 0;) chunk->free.push_back(index);
  chunks_.reserve(chunks_.size() + 1);
  const VkMemoryAllocateInfo info{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                  .allocationSize = blocks * block_bytes_,
                                  .memoryTypeIndex = type_};
  const VkResult result = context_->vk.vkAllocateMemory(context_->device, &info, nullptr, &chunk->memory);
  if (result != VK_SUCCESS) {
    return context_->failed(core::text("vkAllocateMemory for {} bytes", info.allocationSize), result);
  }
  chunks_.push_back(std::move(chunk));
  return {};
}

// Precondition: there is room in `free` for every block of its chunk.
void SparseBlocks::give_back(const Block& block) noexcept {
  block.chunk->free.push_back(block.index);
  if (block.chunk->free.size() < block.chunk->blocks) return;
  context_->vk.vkFreeMemory(context_->device, block.chunk->memory, nullptr);
  std::erase_if(chunks_, [&](const auto& chunk) { return chunk.get() == block.chunk; });
}

Result<std::vector<SparseBlocks::Block>> SparseBlocks::take(std::uint64_t count) {
  std::vector<Block> taken;
  taken.reserve(count);
  const auto take_free = [&] {
    for (const auto& chunk : chunks_) {
      while (taken.size() < count && !chunk->free.empty()) {
        taken.push_back({chunk.get(), chunk->free.back()});
        chunk->free.pop_back();
      }
    }
  };
  take_free();
  while (taken.size() < count) {
    Status status = core::guarded([&] {
      return add_chunk(std::min(count - taken.size(), std::max(kMostChunkBytes / block_bytes_, std::uint64_t{1})));
    });
    if (!status) {
      for (const Block& block : taken) give_back(block);
      return status.error();
    }
    take_free();
  }
  return taken;
}

Status SparseBlocks::bind(std::span<const Binding> bindings) {
  std::vector<VkSparseBufferMemoryBindInfo> buffers;
  for (const Binding& binding : bindings) {
    if (binding.binds.empty()) continue;
    buffers.push_back({.buffer = binding.buffer->buffer(),
                       .bindCount = static_cast<uint32_t>(binding.binds.size()),
                       .pBinds = binding.binds.data()});
  }
  if (buffers.empty()) return {};
  if (Status status = context_->alive(); !status) return status;
  VkResult result = context_->vk.vkResetFences(context_->device, 1, &fence_);
  if (result != VK_SUCCESS) return context_->failed("vkResetFences", result);
  const VkBindSparseInfo info{.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO,
                              .bufferBindCount = static_cast<uint32_t>(buffers.size()),
                              .pBufferBinds = buffers.data()};
  result = context_->bind_sparse(info, fence_);
  if (result != VK_SUCCESS) return context_->failed("vkQueueBindSparse", result);
  // The blocks are the queue's until it is done.
  context_->outlasts(fence_, std::chrono::steady_clock::time_point::max());
  result = context_->vk.vkGetFenceStatus(context_->device, fence_);
  return result == VK_SUCCESS ? Status{} : context_->failed("vkQueueBindSparse", result);
}

Status SparseBlocks::commit(std::span<const runtime::SparseRanges> parts) {
  const std::lock_guard lock(mutex_);
  std::vector<Binding> bindings;
  std::uint64_t count = 0;
  const auto for_each_missing = [&](Binding& binding, const auto& visit) {
    for (const core::ByteRange& range : binding.ranges) {
      for (std::uint64_t at = range.begin; at < range.end; at += block_bytes_) {
        Block& behind = binding.buffer->behind_[at / block_bytes_];
        if (behind.chunk == nullptr) visit(at, behind);  // else it could not be unbound before
      }
    }
  };
  for (const runtime::SparseRanges& part : parts) {
    SparseBuffer& buffer = buffer_of(part);
    Binding& binding = bindings.emplace_back(Binding{&buffer, buffer.committed_.missing(part.ranges)});
    if (!binding.ranges.empty() && buffer.behind_.size() < binding.ranges.back().end / block_bytes_) {
      buffer.behind_.resize(binding.ranges.back().end / block_bytes_);
    }
    for_each_missing(binding, [&](std::uint64_t, const Block&) { ++count; });
  }
  auto blocks = take(count);
  if (!blocks) return blocks.error();
  Status status = core::guarded([&]() -> Status {
    auto next = blocks->begin();
    for (Binding& binding : bindings) {
      for_each_missing(binding, [&](std::uint64_t at, const Block&) {
        const VkDeviceSize offset = next->index * block_bytes_;
        VkSparseMemoryBind* const last = binding.binds.empty() ? nullptr : &binding.binds.back();
        const bool follows = last != nullptr && last->memory == next->chunk->memory &&
                             last->resourceOffset + last->size == at && last->memoryOffset + last->size == offset;
        if (follows) {
          last->size += block_bytes_;
        } else {
          binding.binds.push_back(
              {.resourceOffset = at, .size = block_bytes_, .memory = next->chunk->memory, .memoryOffset = offset});
        }
        ++next;
      });
    }
    return bind(bindings);
  });
  if (!status) {
    for (const Block& block : *blocks) give_back(block);
    return status;
  }
  auto next = blocks->begin();
  for (Binding& binding : bindings) {
    for_each_missing(binding, [&](std::uint64_t, Block& behind) { behind = *next++; });
  }
  for (const runtime::SparseRanges& part : parts) buffer_of(part).committed_.add(part.ranges);
  return {};
}

void SparseBlocks::decommit(std::span<const runtime::SparseRanges> parts) {
  const std::lock_guard lock(mutex_);
  std::vector<Binding> bindings;
  for (const runtime::SparseRanges& part : parts) {
    SparseBuffer& buffer = buffer_of(part);
    Binding& binding = bindings.emplace_back(Binding{&buffer, buffer.committed_.only_in(part.ranges)});
    for (const core::ByteRange& range : binding.ranges) {
      binding.binds.push_back({.resourceOffset = range.begin, .size = range.size()});
    }
  }
  const bool unbound = bind(bindings).ok();
  for (const runtime::SparseRanges& part : parts) buffer_of(part).committed_.remove(part.ranges);
  if (!unbound) return;
  for (const Binding& binding : bindings) {
    for (const core::ByteRange& range : binding.ranges) {
      for (std::uint64_t at = range.begin; at < range.end; at += block_bytes_) {
        give_back(std::exchange(binding.buffer->behind_[at / block_bytes_], {}));
      }
    }
  }
}

}  // namespace rota::vk
