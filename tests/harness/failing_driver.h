#pragma once

#include <cstdint>

#include "backend/vulkan/vk.h"

// Functions that fail, to stand in a device's table in place of the driver's own.

namespace rota::test {

inline VkResult VKAPI_PTR no_pipeline(VkDevice, VkPipelineCache, std::uint32_t, const VkComputePipelineCreateInfo*,
                                      const VkAllocationCallbacks*, VkPipeline* pipelines) {
  *pipelines = VK_NULL_HANDLE;
  return VK_ERROR_INVALID_SHADER_NV;
}

inline VkResult VKAPI_PTR lost_at_submit(VkQueue, std::uint32_t, const VkSubmitInfo*, VkFence) {
  return VK_ERROR_DEVICE_LOST;
}

}  // namespace rota::test
