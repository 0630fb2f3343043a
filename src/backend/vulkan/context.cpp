#include "backend/vulkan/context.h"

#include <algorithm>
#include <thread>

#include "core/error.h"

namespace rota::vk {
namespace {

constexpr const char* kPortabilitySubset = "VK_KHR_portability_subset";  // its macro is in a header for betas

}  // namespace

void Context::look_at(VkPhysicalDevice physical) {
  instance_->vk.vkGetPhysicalDeviceProperties(physical, &properties);
  instance_->vk.vkGetPhysicalDeviceMemoryProperties(physical, &memory_properties);
}

Result<std::shared_ptr<Context>> Context::create(std::shared_ptr<Instance> instance, VkPhysicalDevice physical) {
  std::shared_ptr<Context> made(new Context);
  made->instance_ = std::move(instance);
  const Instance& from = *made->instance_;
  made->queue_family = from.compute_family(physical).value_or(0);
  made->look_at(physical);

  constexpr float kPriority = 1.0F;
  const auto one_queue = [&](uint32_t family) {
    return VkDeviceQueueCreateInfo{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &kPriority};
  };
  const std::optional<uint32_t> sparse_family = from.sparse_family(physical);
  std::vector<VkDeviceQueueCreateInfo> queues{one_queue(made->queue_family)};
  if (sparse_family && *sparse_family != made->queue_family) queues.push_back(one_queue(*sparse_family));
  const VkPhysicalDeviceFeatures features{.sparseBinding = sparse_family ? VK_TRUE : VK_FALSE,
                                          .sparseResidencyBuffer = sparse_family ? VK_TRUE : VK_FALSE};
  std::vector<const char*> extensions;
  if (from.has_extension(physical, kPortabilitySubset)) extensions.push_back(kPortabilitySubset);  // Vulkan insists
  const DeviceExtras extras{.push_descriptors = from.has_extension(physical, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME)};
  if (extras.push_descriptors) extensions.push_back(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  const VkDeviceCreateInfo create{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                  .queueCreateInfoCount = static_cast<uint32_t>(queues.size()),
                                  .pQueueCreateInfos = queues.data(),
                                  .enabledExtensionCount = static_cast<uint32_t>(extensions.size()),
                                  .ppEnabledExtensionNames = extensions.data(),
                                  .pEnabledFeatures = &features};
  VkDevice device = VK_NULL_HANDLE;
  const VkResult result = from.vk.vkCreateDevice(physical, &create, nullptr, &device);
  if (result != VK_SUCCESS) return driver_error("vulkan: no logical device", result);
  made->device = device;
  made->owned_ = true;
  if (Status status = load(made->vk, from.vk.vkGetDeviceProcAddr, device, extras); !status) return status.error();
  made->pushes_descriptors = extras.push_descriptors;
  made->vk.vkGetDeviceQueue(device, made->queue_family, 0, &made->queue_);
  if (sparse_family) made->vk.vkGetDeviceQueue(device, *sparse_family, 0, &made->sparse_queue_);
  return made;
}

Result<std::shared_ptr<Context>> Context::adopt(std::shared_ptr<Instance> instance, const vulkan::Adoption& adoption) {
  std::shared_ptr<Context> made(new Context);
  made->instance_ = std::move(instance);
  made->look_at(adoption.physical_device);
  made->device = adoption.device;
  made->queue_family = adoption.queue_family;
  made->queue_ = adoption.queue;
  made->with_queue_ = adoption.with_queue;
  made->patience = adoption.patience;
  const auto enabled = [&](std::string_view name) {
    return std::ranges::find(adoption.extensions, name) != adoption.extensions.end();
  };
  const DeviceExtras extras{.timeline_semaphores = adoption.timeline_semaphores,
                            .timeline_semaphores_as_extension = enabled(VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME),
                            .push_descriptors = enabled(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME)};
  const PFN_vkGetDeviceProcAddr find = made->instance_->vk.vkGetDeviceProcAddr;
  if (Status status = load(made->vk, find, made->device, extras); !status) return status.error();
  made->pushes_descriptors = extras.push_descriptors;
  return made;
}

Context::~Context() {
  if (owned_ && vk.vkDestroyDevice != nullptr) vk.vkDestroyDevice(device, nullptr);
}

Error Context::failed(std::string_view what, VkResult result) {
  if (result == VK_ERROR_DEVICE_LOST) lose();
  return driver_error(what, result);
}

Status Context::alive() const {
  if (lost_) return Error{Errc::device_lost, "vulkan: the device was lost in an earlier call; open it anew"};
  return {};
}

Status Context::check_queue(std::string_view call) const {
  if (queue_ != VK_NULL_HANDLE) return {};
  return Error{Errc::unsupported,
               core::text("{}: the device was adopted without a queue; wanted one, or vulkan::record()", call)};
}

Status Context::check_timelines(std::string_view call) const {
  if (vk.vkWaitSemaphores != nullptr) return {};
  return Error{Errc::unsupported, core::text("{}: the device was adopted without timeline semaphores; wanted "
                                             "Adoption::timeline_semaphores, on a device that was made with them",
                                             call)};
}

VkResult Context::submit(const VkSubmitInfo* submission, VkFence fence) {
  VkResult result = VK_NOT_READY;  // stays, if the caller's function calls nothing
  const auto call = [&] { result = vk.vkQueueSubmit(queue_, submission != nullptr ? 1 : 0, submission, fence); };
  if (with_queue_) {
    with_queue_(std::ref(call));  // which needs no memory
  } else {
    const std::lock_guard lock(queue_mutex_);
    call();
  }
  return result;
}

VkResult Context::bind_sparse(const VkBindSparseInfo& info, VkFence fence) {
  const std::lock_guard lock(queue_mutex_);
  return vk.vkQueueBindSparse(sparse_queue_, 1, &info, fence);
}

bool Context::outlasts(VkFence fence, std::chrono::steady_clock::time_point deadline) const noexcept {
  constexpr std::chrono::milliseconds kTurn(1);
  for (;;) {
    const VkResult result = vk.vkGetFenceStatus(device, fence);
    if (result == VK_SUCCESS || result == VK_ERROR_DEVICE_LOST) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    const VkResult waited = vk.vkWaitForFences(device, 1, &fence, VK_TRUE, driver_timeout(kTurn));
    if (waited != VK_SUCCESS && waited != VK_TIMEOUT) std::this_thread::sleep_for(kTurn);  // a driver without memory
  }
}

}  // namespace rota::vk
