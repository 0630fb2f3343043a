#include "backend/vulkan/queue.h"

#include <algorithm>
#include <array>

#include "backend/vulkan/pipeline.h"
#include "core/error.h"

namespace rota::vulkan {
namespace {

constexpr std::size_t kMinDescriptorSets = 64;
constexpr std::size_t kMaxIdleSubmissions = 32;
constexpr VkPipelineStageFlags kDeviceStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kDeviceWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kDeviceReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;
constexpr VkAccessFlags kShaderAccess = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;

}  // namespace

Result<std::unique_ptr<Submission>> Submission::create(std::shared_ptr<Context> context) {
  std::unique_ptr<Submission> made(new Submission(std::move(context)));
  Context& device = *made->context_;
  const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                     .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                     .queueFamilyIndex = device.queue_family};
  VkResult result = device.vk.vkCreateCommandPool(device.device, &pool, nullptr, &made->command_pool_);
  if (result != VK_SUCCESS) return device.failed("submit: vkCreateCommandPool", result);
  const VkCommandBufferAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = made->command_pool_,
                                             .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                             .commandBufferCount = 1};
  result = device.vk.vkAllocateCommandBuffers(device.device, &allocate, &made->commands_);
  if (result != VK_SUCCESS) return device.failed("submit: vkAllocateCommandBuffers", result);
  const VkFenceCreateInfo fence{.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  result = device.vk.vkCreateFence(device.device, &fence, nullptr, &made->fence_);
  if (result != VK_SUCCESS) return device.failed("submit: vkCreateFence", result);
  return made;
}

Submission::~Submission() {
  context_->vk.vkDestroyFence(context_->device, fence_, nullptr);
  context_->vk.vkDestroyDescriptorPool(context_->device, descriptor_pool_, nullptr);
  context_->vk.vkDestroyCommandPool(context_->device, command_pool_, nullptr);
}

void Submission::barrier(VkPipelineStageFlags from_stage, VkAccessFlags from, VkPipelineStageFlags to_stage,
                         VkAccessFlags to) {
  const VkMemoryBarrier memory{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = from, .dstAccessMask = to};
  context_->vk.vkCmdPipelineBarrier(commands_, from_stage, to_stage, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

Status Submission::begin() {
  if (Status status = context_->alive(); !status) return status;
  VkResult result = context_->vk.vkResetFences(context_->device, 1, &fence_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkResetFences", result);
  result = context_->vk.vkResetCommandPool(context_->device, command_pool_, 0);
  if (result != VK_SUCCESS) return context_->failed("submit: vkResetCommandPool", result);
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                       .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  result = context_->vk.vkBeginCommandBuffer(commands_, &begin);
  if (result != VK_SUCCESS) return context_->failed("submit: vkBeginCommandBuffer", result);
  // The order of submissions alone makes nothing visible.
  barrier(kDeviceStages, kDeviceWrites, kDeviceStages, kDeviceReads | kDeviceWrites);
  return {};
}

Status Submission::end() {
  barrier(kDeviceStages, kDeviceWrites, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  const VkResult result = context_->vk.vkEndCommandBuffer(commands_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkEndCommandBuffer", result);
  return {};
}

Status Submission::reserve_descriptors(std::size_t sets) {
  if (sets == 0) return {};
  if (sets <= descriptor_sets_) {
    const VkResult result = context_->vk.vkResetDescriptorPool(context_->device, descriptor_pool_, 0);
    return result == VK_SUCCESS ? Status{} : context_->failed("submit: vkResetDescriptorPool", result);
  }
  context_->vk.vkDestroyDescriptorPool(context_->device, descriptor_pool_, nullptr);
  descriptor_pool_ = VK_NULL_HANDLE;
  descriptor_sets_ = 0;
  const auto wanted = static_cast<uint32_t>(std::max(sets, kMinDescriptorSets));
  const VkDescriptorPoolSize size{.type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .descriptorCount = wanted * static_cast<uint32_t>(runtime::kMaxBindings)};
  const VkDescriptorPoolCreateInfo create{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                          .maxSets = wanted,
                                          .poolSizeCount = 1,
                                          .pPoolSizes = &size};
  const VkResult result = context_->vk.vkCreateDescriptorPool(context_->device, &create, nullptr, &descriptor_pool_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkCreateDescriptorPool", result);
  descriptor_sets_ = wanted;
  return {};
}

Status Submission::record_command(const runtime::Command& command, const runtime::Pipeline& erased) {
  const auto& pipeline = static_cast<const ComputePipeline&>(erased);
  const VkDescriptorSetLayout set_layout = pipeline.set_layout();
  const VkDescriptorSetAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                             .descriptorPool = descriptor_pool_,
                                             .descriptorSetCount = 1,
                                             .pSetLayouts = &set_layout};
  VkDescriptorSet set = VK_NULL_HANDLE;
  const VkResult result = context_->vk.vkAllocateDescriptorSets(context_->device, &allocate, &set);
  if (result != VK_SUCCESS) return context_->failed("submit: vkAllocateDescriptorSets", result);

  std::array<VkDescriptorBufferInfo, runtime::kMaxBindings> ranges{};
  std::array<VkWriteDescriptorSet, runtime::kMaxBindings> writes{};
  const auto bound = command.bound();
  for (std::size_t i = 0; i < bound.size(); ++i) {
    ranges[i] = {.buffer = static_cast<const BufferMemory&>(*bound[i].memory).buffer(),
                 .offset = bound[i].bytes.begin,
                 .range = bound[i].bytes.size()};
    writes[i] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                 .dstSet = set,
                 .dstBinding = static_cast<uint32_t>(i),
                 .descriptorCount = 1,
                 .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                 .pBufferInfo = &ranges[i]};
  }
  context_->vk.vkUpdateDescriptorSets(context_->device, static_cast<uint32_t>(bound.size()), writes.data(), 0, nullptr);

  if (command.barrier_before) {
    barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess);
  }
  context_->vk.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.pipeline());
  context_->vk.vkCmdBindDescriptorSets(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout(), 0, 1, &set, 0,
                                       nullptr);
  context_->vk.vkCmdPushConstants(commands_, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, command.params_bytes,
                                  command.params.data());
  context_->vk.vkCmdDispatch(commands_, command.dispatch.groups, 1, 1);
  return {};
}

Status Submission::record(runtime::Batch batch) {
  batch_ = std::move(batch);
  if (Status status = begin(); !status) return status;
  if (Status status = reserve_descriptors(batch_.commands.size()); !status) return status;
  auto pipeline = batch_.pipelines.begin();
  for (const runtime::Command& command : batch_.commands.all()) {
    if (Status status = record_command(command, **pipeline++); !status) return status;
  }
  return end();
}

Status Submission::record_copy(const BufferMemory& from, const BufferMemory& to, VkBufferCopy region) {
  if (Status status = begin(); !status) return status;
  context_->vk.vkCmdCopyBuffer(commands_, from.buffer(), to.buffer(), 1, &region);
  return end();
}

Status Submission::submit() {
  if (Status status = context_->alive(); !status) return status;
  const VkSubmitInfo submit{
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands_};
  const std::lock_guard lock(context_->queue_mutex);
  const VkResult result = context_->vk.vkQueueSubmit(context_->queue, 1, &submit, fence_);
  return result == VK_SUCCESS ? Status{} : context_->failed("submit: vkQueueSubmit", result);
}

Result<bool> Submission::wait_for(std::chrono::nanoseconds timeout) const {
  if (Status status = context_->alive(); !status) return status.error();
  const auto nanoseconds =
      timeout == runtime::kForever ? ~std::uint64_t{0} : static_cast<std::uint64_t>(timeout.count());
  const VkResult result = context_->vk.vkWaitForFences(context_->device, 1, &fence_, VK_TRUE, nanoseconds);
  if (result == VK_SUCCESS || result == VK_TIMEOUT) return result == VK_SUCCESS;
  return context_->failed("wait: vkWaitForFences", result);
}

bool Submission::finished() const noexcept {
  const VkResult result = context_->vk.vkGetFenceStatus(context_->device, fence_);
  if (result == VK_ERROR_DEVICE_LOST) context_->lose();
  return result == VK_SUCCESS;
}

Queue::Queue(std::shared_ptr<Context> context) : context_(std::move(context)) { idle_.reserve(kMaxIdleSubmissions); }

Queue::~Queue() {
  if (in_flight_.oldest()) {
    const std::lock_guard lock(context_->queue_mutex);
    context_->vk.vkDeviceWaitIdle(context_->device);  // a lost device has nothing left to wait for
  }
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
  auto finished = in_flight_.wait_for(ticket, timeout);
  reclaim();
  if (!finished) return finished;
  if (Status status = context_->alive(); !status) return status.error();
  return finished;
}

Status Queue::run(std::unique_ptr<Submission> submission) {
  if (Status status = submission->submit(); !status) return status;
  if (auto finished = submission->wait_for(runtime::kForever); !finished) {
    // Nobody may free what the copy still uses.
    const std::lock_guard lock(context_->queue_mutex);
    context_->vk.vkDeviceWaitIdle(context_->device);
    return finished.error();
  }
  keep(std::move(submission));
  return {};
}

}  // namespace rota::vulkan
