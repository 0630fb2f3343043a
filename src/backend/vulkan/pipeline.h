#pragma once

#include <memory>

#include "backend/vulkan/context.h"
#include "runtime/backend.h"

namespace rota::vk {

class ComputePipeline final : public runtime::Pipeline {
 public:
  static Result<std::shared_ptr<ComputePipeline>> create(std::shared_ptr<Context> context, VkPipelineCache cache,
                                                         const runtime::Kernel& kernel,
                                                         const runtime::Constants& constants);
  ~ComputePipeline() override;

  VkDescriptorSetLayout set_layout() const noexcept { return set_layout_; }
  VkPipelineLayout layout() const noexcept { return layout_; }
  VkPipeline pipeline() const noexcept { return pipeline_; }

 private:
  explicit ComputePipeline(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  VkResult make_layout(std::size_t bindings);
  VkResult make_pipeline(VkPipelineCache cache, const runtime::Kernel& kernel, const runtime::Constants& constants);

  std::shared_ptr<Context> context_;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
};

}  // namespace rota::vk
