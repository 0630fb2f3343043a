#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "backend/vulkan/instance.h"
#include "backend/vulkan/vk.h"

namespace rota::vulkan {

// A logical device and its functions. What was made on it shares it, so it goes last. The functions
// are plain pointers: tests put failing ones in their place.
class Context {
 public:
  static Result<std::shared_ptr<Context>> create(std::shared_ptr<Instance> instance, VkPhysicalDevice physical);
  ~Context();

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // As driver_error, and remembers a lost device.
  Error failed(std::string_view what, VkResult result);

  void lose() noexcept { lost_ = true; }

  // An error once the device is lost.
  Status alive() const;

  VkDevice device = VK_NULL_HANDLE;
  VolkDeviceTable vk{};
  VkQueue queue = VK_NULL_HANDLE;
  std::mutex queue_mutex;
  uint32_t queue_family = 0;
  VkPhysicalDeviceProperties properties{};
  VkPhysicalDeviceMemoryProperties memory_properties{};
  bool maps_device_memory = true;  // off, every copy is staged, as on a card whose memory the host cannot see

 private:
  Context() = default;

  std::shared_ptr<Instance> instance_;
  std::atomic<bool> lost_ = false;
};

}  // namespace rota::vulkan
