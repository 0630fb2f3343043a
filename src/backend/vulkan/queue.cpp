#include "backend/vulkan/queue.h"

#include <algorithm>

#include "core/error.h"

namespace rota::vk {
namespace {

constexpr std::size_t kMaxIdleSubmissions = 32;
constexpr VkPipelineStageFlags kOurStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kOurReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;
constexpr VkAccessFlags kOurWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr Scope kOurs{kOurStages, kOurReads | kOurWrites};

// What is before and behind a submission in the queue: on a device of our own, submissions of ours.
Scope neighbours_of(const Context& context) {
  if (!context.is_adopted()) return kOurs;
  return {VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
}

}  // namespace

TimelinePoints::TimelinePoints(const std::vector<vulkan::TimelinePoint>& points)
    : stages(points.size(), VK_PIPELINE_STAGE_ALL_COMMANDS_BIT) {
  for (const vulkan::TimelinePoint& point : points) {
    semaphores.push_back(point.semaphore);
    values.push_back(point.value);
  }
}

Result<std::unique_ptr<Submission>> Submission::create(std::shared_ptr<Context> context) {
  std::unique_ptr<Submission> made(new Submission(std::move(context)));
  Context& device = *made->context_;
  const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                     .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                     .queueFamilyIndex = device.queue_family};
  VkResult result = device.vk.vkCreateCommandPool(device.device, &pool, nullptr, &made->pool_);
  if (result != VK_SUCCESS) return device.failed("submit: vkCreateCommandPool", result);
  const VkFenceCreateInfo fence{.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  result = device.vk.vkCreateFence(device.device, &fence, nullptr, &made->fence_);
  if (result != VK_SUCCESS) return device.failed("submit: vkCreateFence", result);
  return made;
}

Submission::~Submission() {
  context_->vk.vkDestroyFence(context_->device, fence_, nullptr);
  context_->vk.vkDestroyCommandPool(context_->device, pool_, nullptr);
}

Status Submission::begin() {
  if (Status status = context_->alive(); !status) return status;
  VkResult result = context_->vk.vkResetFences(context_->device, 1, &fence_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkResetFences", result);
  result = context_->vk.vkResetCommandPool(context_->device, pool_, 0);
  if (result != VK_SUCCESS) return context_->failed("submit: vkResetCommandPool", result);
  used_ = 0;
  return {};
}

Status Submission::begin_part() {
  if (used_ == parts_.size()) {
    parts_.reserve(used_ + 1);
    const VkCommandBufferAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                               .commandPool = pool_,
                                               .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                               .commandBufferCount = 1};
    VkCommandBuffer made = VK_NULL_HANDLE;
    const VkResult result = context_->vk.vkAllocateCommandBuffers(context_->device, &allocate, &made);
    if (result != VK_SUCCESS) return context_->failed("submit: vkAllocateCommandBuffers", result);
    parts_.push_back(made);
  }
  ++used_;
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                       .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  const VkResult result = context_->vk.vkBeginCommandBuffer(part(), &begin);
  if (result != VK_SUCCESS) return context_->failed("submit: vkBeginCommandBuffer", result);
  // The order of submissions alone makes nothing visible.
  barrier(*context_, part(), neighbours_of(*context_), kOurs);
  return {};
}

Status Submission::end_part() {
  Scope readers{VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT};
  if (context_->is_adopted()) {
    const Scope neighbours = neighbours_of(*context_);
    readers.stages |= neighbours.stages;
    readers.access |= neighbours.access;
  }
  barrier(*context_, part(), {kOurStages, kOurWrites}, readers);
  const VkResult result = context_->vk.vkEndCommandBuffer(part());
  if (result != VK_SUCCESS) return context_->failed("submit: vkEndCommandBuffer", result);
  return {};
}

Status Submission::record(runtime::Batch batch) {
  if (Status status = commands_->take(std::move(batch)); !status) return status;
  if (Status status = begin(); !status) return status;
  std::size_t first = 0;
  for (const std::size_t count : commands_->parts(context_->most_submitted_bytes)) {
    if (Status status = begin_part(); !status) return status;
    commands_->write(part(), first, count);
    if (Status status = end_part(); !status) return status;
    first += count;
  }
  return {};
}

Status Submission::record_copy(const BufferMemory& from, const BufferMemory& to, VkBufferCopy region) {
  if (Status status = begin(); !status) return status;
  if (Status status = begin_part(); !status) return status;
  context_->vk.vkCmdCopyBuffer(part(), from.buffer(), to.buffer(), 1, &region);
  return end_part();
}

VkResult Submission::submit_part(std::size_t index) {
  const bool is_last = index + 1 == used_;
  const uint32_t waits = index == 0 ? waits_.count() : 0;
  const uint32_t signals = is_last ? signals_.count() : 0;
  const VkTimelineSemaphoreSubmitInfo values{.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                             .waitSemaphoreValueCount = waits,
                                             .pWaitSemaphoreValues = waits_.values.data(),
                                             .signalSemaphoreValueCount = signals,
                                             .pSignalSemaphoreValues = signals_.values.data()};
  const VkSubmitInfo submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .pNext = waits + signals > 0 ? &values : nullptr,
                            .waitSemaphoreCount = waits,
                            .pWaitSemaphores = waits_.semaphores.data(),
                            .pWaitDstStageMask = waits_.stages.data(),
                            .commandBufferCount = 1,
                            .pCommandBuffers = &parts_[index],
                            .signalSemaphoreCount = signals,
                            .pSignalSemaphores = signals_.semaphores.data()};
  return context_->submit(&submit, is_last ? fence_ : VK_NULL_HANDLE);
}

Status Submission::submit() {
  if (Status status = context_->alive(); !status) return status;
  for (std::size_t index = 0; index < used_; ++index) {
    const VkResult result = submit_part(index);
    if (result == VK_SUCCESS) continue;
    if (index > 0 && result != VK_ERROR_DEVICE_LOST) outlast_started();
    return context_->failed("submit: vkQueueSubmit", result);
  }
  return {};
}

// The caller will free all of it, and the first parts may be running.
void Submission::outlast_started() noexcept {
  const bool fenced = context_->submit(nullptr, fence_) == VK_SUCCESS;
  if (fenced && outlasts(runtime::deadline_after(context_->patience))) return;
  runtime::leave(std::move(commands_));
  pool_ = VK_NULL_HANDLE;
  fence_ = VK_NULL_HANDLE;
}

Result<bool> Submission::wait_for(std::chrono::nanoseconds timeout) const {
  if (Status status = context_->alive(); !status) return status.error();
  const VkResult result = context_->vk.vkWaitForFences(context_->device, 1, &fence_, VK_TRUE, driver_timeout(timeout));
  if (result == VK_SUCCESS || result == VK_TIMEOUT) return result == VK_SUCCESS;
  return context_->failed("wait: vkWaitForFences", result);
}

bool Submission::finished() const noexcept {
  const VkResult result = context_->vk.vkGetFenceStatus(context_->device, fence_);
  if (result == VK_ERROR_DEVICE_LOST) context_->lose();
  return result == VK_SUCCESS;
}

Queue::Queue(std::shared_ptr<Context> context) : context_(context), recorded_(std::move(context)) {
  idle_.reserve(kMaxIdleSubmissions);
}

Queue::~Queue() {
  const auto deadline = runtime::deadline_after(context_->patience);
  while (std::unique_ptr<Submission> submission = in_flight_.pop()) {
    if (submission->outlasts(deadline)) {
      submission->release();
    } else {
      runtime::leave(std::move(submission));  // it waits for what the engine never signals
    }
  }
  recorded_.outlast(deadline);
}

void Queue::keep(std::unique_ptr<Submission> submission) noexcept {
  const std::lock_guard lock(idle_mutex_);
  if (idle_.size() < idle_.capacity()) idle_.push_back(std::move(submission));
}

void Queue::reclaim() {
  in_flight_.retire([this](std::unique_ptr<Submission> submission) {
    submission->release();
    keep(std::move(submission));
  });
  recorded_.reclaim();
}

Result<std::unique_ptr<Submission>> Queue::take() {
  reclaim();
  {
    const std::lock_guard lock(idle_mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Submission> submission = std::move(idle_.back());
      idle_.pop_back();
      return submission;
    }
  }
  return Submission::create(context_);
}

Status Queue::push(std::unique_ptr<Submission> submission, std::uint64_t ticket) {
  return in_flight_.push(std::move(submission), ticket);
}

Result<bool> Queue::wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) {
  const auto end = recorded_.end_of(ticket);
  auto finished = end ? recorded_.wait_for(*end, timeout) : in_flight_.wait_for(ticket, timeout);
  reclaim();
  if (!finished) return finished;
  if (Status status = context_->alive(); !status) return status.error();
  return finished;
}

Status Queue::run(std::unique_ptr<Submission> submission) {
  if (Status status = submission->submit(); !status) return status;
  if (auto finished = submission->wait_for(runtime::kForever); !finished) {
    submission->outlasts(std::chrono::steady_clock::time_point::max());  // nobody may free what the copy still uses
    return finished.error();
  }
  keep(std::move(submission));
  return {};
}

}  // namespace rota::vk
