#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/process.h"
#include "runtime/backend.h"
#include "runtime/block_pool.h"
#include "runtime/inside.h"
#include "runtime/registry.h"

namespace rota::runtime {

// What every handle of one open device shares.
class DeviceState : public core::OfProcess {
 public:
  struct Options {
    std::string pipeline_cache;  // a file's name
    TraceSink trace;
  };
  static std::shared_ptr<DeviceState> make(std::unique_ptr<Backend> backend, Options options) {
    return {new DeviceState(std::move(backend), std::move(options)), core::DeleteOrLeave{}};
  }

  // An error in a child of fork(), which has neither the device's threads nor its driver. Every call asks before it
  // locks or waits.
  Status check_here(std::string_view op) const;

  Backend& backend() noexcept { return *backend_; }
  const DeviceInfo& info() const noexcept { return backend_->info(); }
  BlockPool& uploads() noexcept { return uploads_; }
  BlockPool& scratch() noexcept { return scratch_; }
  const std::string& pipeline_cache() const noexcept { return pipeline_cache_; }  // a file's name
  bool is_traced() const noexcept { return trace_ != nullptr; }

  // One per command; missing ones are built.
  Result<std::vector<std::shared_ptr<const Pipeline>>> pipelines(const CommandList& commands);

  // Builds missing pipelines and enqueues the commands. Returns the submission's ticket.
  Result<std::uint64_t> submit(CommandList commands, const Placement* placement = nullptr);

 private:
  Result<std::uint64_t> enqueue(std::unique_ptr<PreparedBatch> batch, const UsedMemories* memories);

  DeviceState(std::unique_ptr<Backend> backend, Options options)
      : pipeline_cache_(std::move(options.pipeline_cache)),
        trace_(options.trace ? std::make_shared<const TraceSink>(std::move(options.trace)) : nullptr),
        backend_(std::move(backend)) {}

  std::string pipeline_cache_;
  std::shared_ptr<const TraceSink> trace_;  // null: none
  std::atomic<std::uint64_t> traced_batches_ = 0;
  Registry registry_;
  BlockPool uploads_{{MemoryKind::upload, std::uint64_t{256} << 10, std::uint64_t{256} << 10}};
  BlockPool scratch_{{MemoryKind::device, std::uint64_t{1} << 20, std::uint64_t{256} << 20}};
  std::mutex submitting_;
  std::uint64_t last_ticket_ = 0;
  std::unique_ptr<Backend> backend_;  // last, so destroyed first: it waits for everything in flight
};

// What every handle of one buffer shares. It keeps the device open.
class BufferState : public core::OfProcess {
 public:
  static std::shared_ptr<BufferState> make(std::shared_ptr<DeviceState> device, std::shared_ptr<Memory> memory) {
    return {new BufferState(std::move(device), std::move(memory)), core::DeleteOrLeave{}};
  }

  const std::shared_ptr<DeviceState>& device() const noexcept { return device_; }
  const std::shared_ptr<Memory>& memory() const noexcept { return memory_; }

 private:
  BufferState(std::shared_ptr<DeviceState> device, std::shared_ptr<Memory> memory) noexcept
      : device_(std::move(device)), memory_(std::move(memory)) {}

  std::shared_ptr<DeviceState> device_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace rota::runtime
