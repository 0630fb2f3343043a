#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "backend/vulkan/commands.h"
#include "backend/vulkan/context.h"
#include "runtime/backend.h"

namespace rota::vk {

// A batch in a command buffer of the engine's, and what tells that it has run.
struct Recorded {
  explicit Recorded(std::shared_ptr<Context> context) noexcept : commands(std::move(context)) {}

  Commands commands;
  vulkan::TimelinePoint done{};
  std::uint64_t ticket = 0;
};

// Batches that the engine submits, or has submitted. They may end in any order, and nothing says that they ever do.
class RecordedBatches {
 public:
  explicit RecordedBatches(std::shared_ptr<Context> context)
      : context_(std::move(context)), batches_(std::make_unique<std::list<Recorded>>()) {}

  // At the end of the device: waits until then, and leaves what has not run, unless the device was lost. The last call.
  void outlast(std::chrono::steady_clock::time_point deadline) noexcept;

  RecordedBatches(const RecordedBatches&) = delete;
  RecordedBatches& operator=(const RecordedBatches&) = delete;

  // Writes a batch into the engine's command buffer. After an error nothing was written.
  Result<std::list<Recorded>> write(runtime::Batch batch, const vulkan::Recording& recording);

  // From now on the batch is known by its ticket.
  void add(std::list<Recorded> one, std::uint64_t ticket) noexcept;

  // Lets go of what has run.
  void reclaim() noexcept;

  // Of a batch that has not been let go of.
  std::optional<vulkan::TimelinePoint> end_of(std::uint64_t ticket) const;
  Result<bool> wait_for(const vulkan::TimelinePoint& end, std::chrono::nanoseconds timeout) const;

  // An error while a batch that conflicts has not run: only the engine knows whether it will.
  Status check_apart(const runtime::Memory& memory, Access access);

 private:
  bool reached(const vulkan::TimelinePoint& point) const noexcept;

  std::shared_ptr<Context> context_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::list<Recorded>> batches_;
};

}  // namespace rota::vk
