#include "backend/vulkan/commands.h"

#include <algorithm>
#include <array>

#include "backend/vulkan/memory.h"
#include "backend/vulkan/pipeline.h"
#include "core/error.h"

namespace rota::vk {
namespace {

constexpr std::size_t kMinSets = 64;
constexpr Scope kShader{VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};

// What a command binds, as Vulkan takes it.
class DescriptorWrites {
 public:
  DescriptorWrites(const runtime::Command& command, VkDescriptorSet set) noexcept {
    for (const runtime::Binding& binding : command.bindings) {
      ranges_[count_] = {.buffer = static_cast<const BufferMemory&>(*binding.memory).buffer(),
                         .offset = binding.bytes.begin,
                         .range = binding.bytes.size()};
      writes_[count_] = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                         .dstSet = set,
                         .dstBinding = count_,
                         .descriptorCount = 1,
                         .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                         .pBufferInfo = &ranges_[count_]};
      ++count_;
    }
  }
  DescriptorWrites(const DescriptorWrites&) = delete;
  DescriptorWrites& operator=(const DescriptorWrites&) = delete;

  uint32_t count() const noexcept { return count_; }
  const VkWriteDescriptorSet* data() const noexcept { return writes_.data(); }

 private:
  uint32_t count_ = 0;
  std::array<VkDescriptorBufferInfo, runtime::kMaxBindings> ranges_{};
  std::array<VkWriteDescriptorSet, runtime::kMaxBindings> writes_{};
};

const ComputePipeline& pipeline_of(const runtime::Batch& batch, std::size_t index) noexcept {
  return static_cast<const ComputePipeline&>(*batch.pipelines[index]);
}

}  // namespace

void barrier(const Context& context, VkCommandBuffer commands, const Scope& from, const Scope& to) {
  const VkMemoryBarrier memory{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = from.access, .dstAccessMask = to.access};
  context.vk.vkCmdPipelineBarrier(commands, from.stages, to.stages, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

Commands::~Commands() { context_->vk.vkDestroyDescriptorPool(context_->device, pool_, nullptr); }

Status Commands::reserve_sets(std::size_t count) {
  if (count <= pool_sets_) {
    const VkResult result = context_->vk.vkResetDescriptorPool(context_->device, pool_, 0);
    return result == VK_SUCCESS ? Status{} : context_->failed("submit: vkResetDescriptorPool", result);
  }
  context_->vk.vkDestroyDescriptorPool(context_->device, pool_, nullptr);
  pool_ = VK_NULL_HANDLE;
  pool_sets_ = 0;
  const auto wanted = static_cast<uint32_t>(std::max(count, kMinSets));
  const VkDescriptorPoolSize size{.type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .descriptorCount = wanted * static_cast<uint32_t>(runtime::kMaxBindings)};
  const VkDescriptorPoolCreateInfo create{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                          .maxSets = wanted,
                                          .poolSizeCount = 1,
                                          .pPoolSizes = &size};
  const VkResult result = context_->vk.vkCreateDescriptorPool(context_->device, &create, nullptr, &pool_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkCreateDescriptorPool", result);
  pool_sets_ = wanted;
  return {};
}

Status Commands::make_sets() {
  const std::size_t count = batch_.commands.size();
  std::vector<VkDescriptorSetLayout> layouts;
  layouts.reserve(count);
  for (std::size_t index = 0; index < count; ++index) layouts.push_back(pipeline_of(batch_, index).set_layout());
  sets_.resize(count);
  const VkDescriptorSetAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                             .descriptorPool = pool_,
                                             .descriptorSetCount = static_cast<uint32_t>(count),
                                             .pSetLayouts = layouts.data()};
  const VkResult result = context_->vk.vkAllocateDescriptorSets(context_->device, &allocate, sets_.data());
  if (result != VK_SUCCESS) return context_->failed("submit: vkAllocateDescriptorSets", result);
  auto set = sets_.begin();
  for (const runtime::Command& command : batch_.commands.all()) {
    const DescriptorWrites writes(command, *set++);
    context_->vk.vkUpdateDescriptorSets(context_->device, writes.count(), writes.data(), 0, nullptr);
  }
  return {};
}

Status Commands::take(runtime::Batch batch) {
  if (Status status = context_->alive(); !status) return status;
  batch_ = std::move(batch);
  const std::size_t count = batch_.commands.size();
  if (batch_.trace) {
    if (Status status = times_.reserve(count); !status) return status;
  }
  if (count == 0 || context_->pushes_descriptors) return {};
  if (Status status = reserve_sets(count); !status) return status;
  return make_sets();
}

void Commands::write_command(VkCommandBuffer to, const runtime::Command& command, std::size_t index) const noexcept {
  const ComputePipeline& pipeline = pipeline_of(batch_, index);
  if (command.barrier_before) barrier(*context_, to, kShader, kShader);
  context_->vk.vkCmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.pipeline());
  if (context_->pushes_descriptors) {
    const DescriptorWrites writes(command, VK_NULL_HANDLE);
    context_->vk.vkCmdPushDescriptorSetKHR(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout(), 0, writes.count(),
                                           writes.data());
  } else {
    context_->vk.vkCmdBindDescriptorSets(to, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.layout(), 0, 1, &sets_[index], 0,
                                         nullptr);
  }
  context_->vk.vkCmdPushConstants(to, pipeline.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                  static_cast<uint32_t>(command.params.size()), command.params.data());
  if (batch_.trace) times_.begin(to, index);
  context_->vk.vkCmdDispatch(to, command.dispatch.groups, 1, 1);
  if (batch_.trace) times_.end(to, index);
}

void Commands::release() noexcept {
  if (batch_.trace) times_.report(*batch_.trace, batch_.commands.size());
  batch_ = {};
}

std::vector<std::size_t> Commands::parts(std::uint64_t most_bytes) const {
  std::vector<std::size_t> counts{0};
  std::uint64_t left = most_bytes;
  for (const runtime::Command& command : batch_.commands.all()) {
    const std::uint64_t items = command.dispatch.items;
    const std::uint64_t item_bytes = command.dispatch.item_bytes;
    const bool is_most = item_bytes != 0 && items > most_bytes / item_bytes;
    const std::uint64_t work = is_most ? most_bytes : items * item_bytes;
    if (work > left && counts.back() > 0) {
      counts.push_back(0);
      left = most_bytes;
    }
    ++counts.back();
    left -= work;
  }
  return counts;
}

void Commands::write(VkCommandBuffer to, std::size_t first, std::size_t count) const noexcept {
  if (batch_.trace) times_.reset(to, first, count);
  const std::span<const runtime::Command> all = batch_.commands.all();
  for (std::size_t index = first; index < first + count; ++index) write_command(to, all[index], index);
}

}  // namespace rota::vk
