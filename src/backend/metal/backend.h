#pragma once

#include <memory>
#include <string>

#include "backend/metal/context.h"
#include "backend/metal/pipeline.h"
#include "backend/metal/queue.h"
#include "runtime/backend.h"

namespace rota::mtl {

DeviceInfo describe(id<MTLDevice> device, std::string id);

class MetalBackend final : public runtime::Backend {
 public:
  MetalBackend(DeviceInfo info, std::shared_ptr<Context> context, std::unique_ptr<Pipelines> pipelines)
      : info_(std::move(info)), context_(std::move(context)), pipelines_(std::move(pipelines)), queue_(context_) {}

  const DeviceInfo& info() const noexcept override { return info_; }
  Result<std::shared_ptr<runtime::Memory>> allocate(std::uint64_t bytes, runtime::MemoryKind kind) override;
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
  DeviceInfo info_;
  std::shared_ptr<Context> context_;
  std::unique_ptr<Pipelines> pipelines_;
  Queue queue_;  // last: it waits for what is in flight
};

}  // namespace rota::mtl
