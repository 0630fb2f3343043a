#include "backend/vulkan/pipeline.h"

#include <array>

#include "core/error.h"

namespace rota::vk {
namespace {

constexpr VkDescriptorSetLayoutCreateFlags kPushed = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR;

}  // namespace

VkResult ComputePipeline::make_layout(std::size_t bindings) {
  std::array<VkDescriptorSetLayoutBinding, runtime::kMaxBindings> slots{};
  for (std::size_t i = 0; i < bindings; ++i) {
    slots[i] = {.binding = static_cast<uint32_t>(i),
                .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                .descriptorCount = 1,
                .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  }
  const bool pushed = context_->pushes_descriptors;
  const VkDescriptorSetLayoutCreateInfo set{.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                            .flags = pushed ? kPushed : 0,
                                            .bindingCount = static_cast<uint32_t>(bindings),
                                            .pBindings = slots.data()};
  const VkResult result = context_->vk.vkCreateDescriptorSetLayout(context_->device, &set, nullptr, &set_layout_);
  if (result != VK_SUCCESS) return result;

  const VkPushConstantRange params{
      .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .offset = 0, .size = runtime::kMaxParamsBytes};
  const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                          .setLayoutCount = 1,
                                          .pSetLayouts = &set_layout_,
                                          .pushConstantRangeCount = 1,
                                          .pPushConstantRanges = &params};
  return context_->vk.vkCreatePipelineLayout(context_->device, &layout, nullptr, &layout_);
}

VkResult ComputePipeline::make_pipeline(VkPipelineCache cache, const runtime::Kernel& kernel,
                                        const runtime::Constants& constants) {
  const VkShaderModuleCreateInfo code{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                      .codeSize = kernel.code.spirv.size_bytes(),
                                      .pCode = kernel.code.spirv.data()};
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult result = context_->vk.vkCreateShaderModule(context_->device, &code, nullptr, &module);
  if (result != VK_SUCCESS) return result;

  std::array<VkSpecializationMapEntry, runtime::kMaxConstants> entries{};
  for (uint32_t i = 0; i < constants.count; ++i) {
    entries[i] = {.constantID = i, .offset = i * static_cast<uint32_t>(sizeof(uint32_t)), .size = sizeof(uint32_t)};
  }
  const VkSpecializationInfo specialization{.mapEntryCount = constants.count,
                                            .pMapEntries = entries.data(),
                                            .dataSize = constants.count * sizeof(uint32_t),
                                            .pData = constants.values.data()};
  const VkComputePipelineCreateInfo create{.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                           .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                     .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                     .module = module,
                                                     .pName = "main",
                                                     .pSpecializationInfo = &specialization},
                                           .layout = layout_};
  result = context_->vk.vkCreateComputePipelines(context_->device, cache, 1, &create, nullptr, &pipeline_);
  context_->vk.vkDestroyShaderModule(context_->device, module, nullptr);
  return result;
}

Result<std::shared_ptr<ComputePipeline>> ComputePipeline::create(std::shared_ptr<Context> context,
                                                                 VkPipelineCache cache, const runtime::Kernel& kernel,
                                                                 const runtime::Constants& constants) {
  std::shared_ptr<ComputePipeline> made(new ComputePipeline(std::move(context)));
  VkResult result = made->make_layout(kernel.bindings.size());
  if (result == VK_SUCCESS) result = made->make_pipeline(cache, kernel, constants);
  if (result == VK_SUCCESS) return made;

  Error error = made->context_->failed(core::text("{}: the driver refuses the kernel", kernel.name), result);
  if (error.code == Errc::internal) error.code = Errc::pipeline_failed;
  return error;
}

ComputePipeline::~ComputePipeline() {
  context_->vk.vkDestroyPipeline(context_->device, pipeline_, nullptr);
  context_->vk.vkDestroyPipelineLayout(context_->device, layout_, nullptr);
  context_->vk.vkDestroyDescriptorSetLayout(context_->device, set_layout_, nullptr);
}

}  // namespace rota::vk
