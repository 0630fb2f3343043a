#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/vulkan/commands.h"
#include "backend/vulkan/context.h"
#include "backend/vulkan/memory.h"
#include "backend/vulkan/recorded.h"
#include "runtime/backend.h"
#include "runtime/in_flight.h"

namespace rota::vk {

// Values of timeline semaphores, as Vulkan takes them.
struct TimelinePoints {
  TimelinePoints() = default;
  explicit TimelinePoints(const std::vector<vulkan::TimelinePoint>& points);
  uint32_t count() const noexcept { return static_cast<uint32_t>(semaphores.size()); }

  std::vector<VkSemaphore> semaphores;
  std::vector<std::uint64_t> values;
  std::vector<VkPipelineStageFlags> stages;
};

// A batch on its way through the queue, with all it needs, used again and again. Drivers end a submission that runs for
// seconds, and the device with it: so a batch with much work becomes several, each in a command buffer of its own.
class Submission {
 public:
  static Result<std::unique_ptr<Submission>> create(std::shared_ptr<Context> context);
  ~Submission();

  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  Status record(runtime::Batch batch);
  Status record_copy(const BufferMemory& from, const BufferMemory& to, VkBufferCopy region);

  // What submit() will wait for and signal besides.
  void set_order(const vulkan::Order& order) {
    waits_ = TimelinePoints(order.waits);
    signals_ = TimelinePoints(order.signals);
  }
  Status submit();
  Result<bool> wait_for(std::chrono::nanoseconds timeout) const;
  bool finished() const noexcept;

  bool outlasts(std::chrono::steady_clock::time_point deadline) const noexcept {
    return context_->outlasts(fence_, deadline);
  }

  // Lets go of what the last batch used. Precondition: it has finished, or was never submitted.
  void release() noexcept {
    commands_->release();
    waits_ = {};
    signals_ = {};
  }

 private:
  explicit Submission(std::shared_ptr<Context> context)
      : context_(std::move(context)), commands_(std::make_unique<Commands>(context_)) {}
  Status begin();  // anew
  Status begin_part();
  Status end_part();
  VkCommandBuffer part() const noexcept { return parts_[used_ - 1]; }
  VkResult submit_part(std::size_t index);  // allocates nothing: what has begun must not be dropped
  void outlast_started() noexcept;

  std::shared_ptr<Context> context_;
  std::unique_ptr<Commands> commands_;
  TimelinePoints waits_, signals_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<VkCommandBuffer> parts_;
  std::size_t used_ = 0;  // of the parts, by the current batch
  VkFence fence_ = VK_NULL_HANDLE;
};

// Submissions in flight, in order, and idle ones to use again; and what the engine submits itself.
class Queue {
 public:
  explicit Queue(std::shared_ptr<Context> context);
  ~Queue();

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Lets go of what finished submissions hold.
  void reclaim();

  Result<std::unique_ptr<Submission>> take();
  Status push(std::unique_ptr<Submission> submission, std::uint64_t ticket);
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout);

  // Runs a prepared submission at once and waits for it.
  Status run(std::unique_ptr<Submission> submission);

  RecordedBatches& recorded() noexcept { return recorded_; }

 private:
  void keep(std::unique_ptr<Submission> submission) noexcept;

  std::shared_ptr<Context> context_;
  runtime::InFlight<Submission> in_flight_;
  RecordedBatches recorded_;
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Submission>> idle_;
};

}  // namespace rota::vk
