#pragma once

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES  // so that nothing is called past the tables
#endif
#include <vulkan/vulkan_core.h>

#include <string_view>

#include "rota/result.h"

// Vulkan's functions, in tables: one for each instance and each device, because an engine's may come from another
// loader than ours. Tests put failing functions into them.

namespace rota::vk {

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the names of functions make members and texts
#define ROTA_VK_LOADER_FUNCTIONS(X)         \
  X(vkCreateInstance)                       \
  X(vkEnumerateInstanceExtensionProperties) \
  X(vkEnumerateInstanceLayerProperties)

#define ROTA_VK_INSTANCE_FUNCTIONS(X)     \
  X(vkCreateDevice)                       \
  X(vkDestroyInstance)                    \
  X(vkEnumerateDeviceExtensionProperties) \
  X(vkEnumeratePhysicalDevices)           \
  X(vkGetDeviceProcAddr)                  \
  X(vkGetPhysicalDeviceFeatures)          \
  X(vkGetPhysicalDeviceMemoryProperties)  \
  X(vkGetPhysicalDeviceProperties)        \
  X(vkGetPhysicalDeviceProperties2)       \
  X(vkGetPhysicalDeviceQueueFamilyProperties)

#define ROTA_VK_DEVICE_FUNCTIONS(X) \
  X(vkAllocateCommandBuffers)       \
  X(vkAllocateDescriptorSets)       \
  X(vkAllocateMemory)               \
  X(vkBeginCommandBuffer)           \
  X(vkBindBufferMemory)             \
  X(vkCmdBindDescriptorSets)        \
  X(vkCmdBindPipeline)              \
  X(vkCmdCopyBuffer)                \
  X(vkCmdDispatch)                  \
  X(vkCmdPipelineBarrier)           \
  X(vkCmdPushConstants)             \
  X(vkCmdResetQueryPool)            \
  X(vkCmdWriteTimestamp)            \
  X(vkCreateBuffer)                 \
  X(vkCreateCommandPool)            \
  X(vkCreateComputePipelines)       \
  X(vkCreateDescriptorPool)         \
  X(vkCreateDescriptorSetLayout)    \
  X(vkCreateFence)                  \
  X(vkCreatePipelineCache)          \
  X(vkCreatePipelineLayout)         \
  X(vkCreateQueryPool)              \
  X(vkCreateShaderModule)           \
  X(vkDestroyBuffer)                \
  X(vkDestroyCommandPool)           \
  X(vkDestroyDescriptorPool)        \
  X(vkDestroyDescriptorSetLayout)   \
  X(vkDestroyDevice)                \
  X(vkDestroyFence)                 \
  X(vkDestroyPipeline)              \
  X(vkDestroyPipelineCache)         \
  X(vkDestroyPipelineLayout)        \
  X(vkDestroyQueryPool)             \
  X(vkDestroyShaderModule)          \
  X(vkEndCommandBuffer)             \
  X(vkFreeMemory)                   \
  X(vkGetBufferMemoryRequirements)  \
  X(vkGetDeviceQueue)               \
  X(vkGetFenceStatus)               \
  X(vkGetPipelineCacheData)         \
  X(vkGetQueryPoolResults)          \
  X(vkMapMemory)                    \
  X(vkQueueBindSparse)              \
  X(vkQueueSubmit)                  \
  X(vkResetCommandPool)             \
  X(vkResetDescriptorPool)          \
  X(vkResetFences)                  \
  X(vkUpdateDescriptorSets)         \
  X(vkWaitForFences)

#define ROTA_VK_MEMBER(name) PFN_##name name = nullptr;
// NOLINTEND(cppcoreguidelines-macro-usage)

struct LoaderFunctions {
  ROTA_VK_LOADER_FUNCTIONS(ROTA_VK_MEMBER)
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  PFN_vkEnumerateInstanceVersion vkEnumerateInstanceVersion = nullptr;  // null: Vulkan 1.0
};

struct InstanceFunctions {
  ROTA_VK_INSTANCE_FUNCTIONS(ROTA_VK_MEMBER)
  PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT = nullptr;    // null: without the extension
  PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT = nullptr;  // null: without the extension
};

// What a device was made with, besides the core of Vulkan 1.1.
struct DeviceExtras {
  bool timeline_semaphores = false;
  bool timeline_semaphores_as_extension = false;  // then functions are the extension's
  bool push_descriptors = false;
};

struct DeviceFunctions {
  ROTA_VK_DEVICE_FUNCTIONS(ROTA_VK_MEMBER)
  PFN_vkGetSemaphoreCounterValue vkGetSemaphoreCounterValue = nullptr;  // null: no timeline semaphores
  PFN_vkWaitSemaphores vkWaitSemaphores = nullptr;                      // null: no timeline semaphores
  PFN_vkCmdPushDescriptorSetKHR vkCmdPushDescriptorSetKHR = nullptr;    // null: no push descriptors
};

// Opens this machine's loader, once. An error where there is none, or one of Vulkan 1.0.
Result<LoaderFunctions> load_loader();

// A name that is not found is an error.
Status load(InstanceFunctions& functions, PFN_vkGetInstanceProcAddr find, VkInstance instance);
Status load(DeviceFunctions& functions, PFN_vkGetDeviceProcAddr find, VkDevice device, const DeviceExtras& extras);

}  // namespace rota::vk
