#pragma once

#include <memory>

#include "backend/vulkan/context.h"
#include "backend/vulkan/pipeline_cache.h"
#include "backend/vulkan/queue.h"
#include "backend/vulkan/sparse.h"
#include "runtime/backend.h"

namespace rota::vk {

// Where a copy comes from or goes to; the other pointer is null.
struct HostSide {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t size = 0;
};

class VulkanBackend final : public runtime::Backend {
 public:
  VulkanBackend(DeviceInfo info, std::shared_ptr<Context> context, std::unique_ptr<PipelineCache> pipelines)
      : info_(std::move(info)),
        context_(std::move(context)),
        pipelines_(std::move(pipelines)),
        sparse_(std::make_shared<SparseBlocks>(context_)),
        queue_(context_) {}

  const DeviceInfo& info() const noexcept override { return info_; }
  Result<std::shared_ptr<runtime::Memory>> allocate(std::uint64_t bytes, runtime::MemoryKind kind) override;
  Result<std::shared_ptr<runtime::Memory>> reserve(std::uint64_t bytes) override;
  std::uint64_t sparse_bytes_left() override { return info_.limits.max_sparse_bytes > 0 ? sparse_->bytes_left() : 0; }
  Status commit(std::span<const runtime::SparseRanges> parts) override;
  void decommit(std::span<const runtime::SparseRanges> parts) override;
  Result<std::shared_ptr<runtime::Pipeline>> build(const runtime::Kernel& kernel,
                                                   const runtime::Constants& constants) override;
  Result<std::unique_ptr<runtime::PreparedBatch>> prepare(runtime::Batch batch) override;
  Status enqueue(std::unique_ptr<runtime::PreparedBatch> batch, std::uint64_t ticket) override;
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) override {
    return queue_.wait_for(ticket, timeout);
  }
  Status settle(const runtime::Memory& memory, Access access) override;
  Status read(const runtime::Memory& from, std::uint64_t offset, std::span<std::byte> to) override;
  Status write(runtime::Memory& to, std::uint64_t offset, std::span<const std::byte> from) override;
  Status save_pipelines() override;

  const std::shared_ptr<Context>& context() const noexcept { return context_; }

 private:
  // Copies through a buffer that the host sees, part by part.
  Status stage(const BufferMemory& memory, std::uint64_t offset, HostSide host);

  DeviceInfo info_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<PipelineCache> pipelines_;
  std::shared_ptr<SparseBlocks> sparse_;
  Queue queue_;  // last: it waits for what is in flight
};

}  // namespace rota::vk
