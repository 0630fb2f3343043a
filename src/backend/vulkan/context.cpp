#include "backend/vulkan/context.h"

namespace rota::vulkan {

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<Instance> instance, VkPhysicalDevice physical) {
  std::shared_ptr<Context> made(new Context);
  made->instance_ = std::move(instance);
  made->queue_family = compute_family(physical).value_or(0);
  vkGetPhysicalDeviceProperties(physical, &made->properties);
  vkGetPhysicalDeviceMemoryProperties(physical, &made->memory_properties);

  constexpr float kPriority = 1.0F;
  const VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueFamilyIndex = made->queue_family,
                                      .queueCount = 1,
                                      .pQueuePriorities = &kPriority};
  const VkDeviceCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue};
  if (const VkResult result = vkCreateDevice(physical, &create, nullptr, &made->device); result != VK_SUCCESS) {
    return driver_error("vulkan: no logical device", result);
  }
  volkLoadDeviceTable(&made->vk, made->device);
  made->vk.vkGetDeviceQueue(made->device, made->queue_family, 0, &made->queue);
  return made;
}

Context::~Context() {
  if (device != VK_NULL_HANDLE) vk.vkDestroyDevice(device, nullptr);
}

Error Context::failed(std::string_view what, VkResult result) {
  if (result == VK_ERROR_DEVICE_LOST) lose();
  return driver_error(what, result);
}

Status Context::alive() const {
  if (lost_) return Error{Errc::device_lost, "vulkan: the device was lost in an earlier call; open it anew"};
  return {};
}

}  // namespace rota::vulkan
