#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/vulkan/context.h"
#include "backend/vulkan/memory.h"
#include "runtime/backend.h"
#include "runtime/in_flight.h"

namespace rota::vulkan {

// A command buffer with all it needs, used again and again, one batch at a time.
class Submission {
 public:
  static Result<std::unique_ptr<Submission>> create(std::shared_ptr<Context> context);
  ~Submission();

  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  Status record(runtime::Batch batch);
  Status record_copy(const BufferMemory& from, const BufferMemory& to, VkBufferCopy region);
  Status submit();
  Result<bool> wait_for(std::chrono::nanoseconds timeout) const;
  bool finished() const noexcept;

  // Lets go of what the last batch used. Precondition: it has finished, or was never submitted.
  void release() noexcept { batch_ = {}; }

 private:
  explicit Submission(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  Status begin();
  Status end();
  Status reserve_descriptors(std::size_t sets);
  Status record_command(const runtime::Command& command, const runtime::Pipeline& pipeline);
  void barrier(VkPipelineStageFlags from_stage, VkAccessFlags from, VkPipelineStageFlags to_stage, VkAccessFlags to);

  std::shared_ptr<Context> context_;
  runtime::Batch batch_;
  VkCommandPool command_pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkDescriptorPool descriptor_pool_ = VK_NULL_HANDLE;
  std::size_t descriptor_sets_ = 0;
  VkFence fence_ = VK_NULL_HANDLE;
};

// Submissions in flight, in order, and idle ones to use again.
class Queue {
 public:
  explicit Queue(std::shared_ptr<Context> context);
  ~Queue();

  // Lets go of what finished submissions hold.
  void reclaim();

  Result<std::unique_ptr<Submission>> take();
  Status push(std::unique_ptr<Submission> submission, std::uint64_t ticket);
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout);

  // Runs a prepared submission at once and waits for it.
  Status run(std::unique_ptr<Submission> submission);

 private:
  void keep(std::unique_ptr<Submission> submission) noexcept;

  std::shared_ptr<Context> context_;
  runtime::InFlight<Submission> in_flight_;
  std::mutex idle_mutex_;
  std::vector<std::unique_ptr<Submission>> idle_;
};

}  // namespace rota::vulkan
