#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/vulkan/vk.h"
#include "rota/device.h"

namespace rota::vulkan {

using OnMessage = std::function<void(std::string_view)>;

class Instance {
 public:
  // A callback turns validation on, synchronization included.
  static Result<std::shared_ptr<Instance>> create(OnMessage on_message);
  ~Instance();

  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Result<std::vector<VkPhysicalDevice>> physical_devices() const;

 private:
  explicit Instance(OnMessage on_message) noexcept : on_message_(std::move(on_message)) {}

  OnMessage on_message_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

// What the driver says of itself. Devices that cannot run our kernels are an error with the reason.
Result<DeviceInfo> describe(VkPhysicalDevice physical, std::string id);

// The queue family that runs compute; nothing where there is none.
std::optional<uint32_t> compute_family(VkPhysicalDevice physical);

}  // namespace rota::vulkan
