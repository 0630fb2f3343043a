#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/vulkan/vk.h"
#include "rota/device.h"

namespace rota::vk {

using OnMessage = std::function<void(std::string_view)>;

class Instance {
 public:
  // A callback turns validation on, synchronization included.
  static Result<std::shared_ptr<Instance>> create(OnMessage on_message);

  // An engine's, which is not destroyed here.
  static Result<std::shared_ptr<Instance>> adopt(PFN_vkGetInstanceProcAddr find, VkInstance instance);
  ~Instance();

  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Result<std::vector<VkPhysicalDevice>> physical_devices() const;

  // What the driver says of itself. Devices that cannot run our kernels are an error with the reason.
  Result<DeviceInfo> describe(VkPhysicalDevice physical, std::string id) const;

  std::vector<VkQueueFamilyProperties> queue_families(VkPhysicalDevice physical) const;

  // The queue family that runs compute; nothing where there is none.
  std::optional<uint32_t> compute_family(VkPhysicalDevice physical) const;

  // The queue family that binds blocks of sparse buffers, of another kind than the one that computes if there is one:
  // it does not wait for kernels. Nothing where the device has no such buffers.
  std::optional<uint32_t> sparse_family(VkPhysicalDevice physical) const;
  std::uint32_t cores_of(VkPhysicalDevice physical) const;  // 0: the driver does not say

  bool has_extension(VkPhysicalDevice physical, std::string_view wanted) const;

  InstanceFunctions vk{};  // tests replace some

 private:
  explicit Instance(OnMessage on_message) noexcept : on_message_(std::move(on_message)) {}
  Status make(const LoaderFunctions& loader);

  OnMessage on_message_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  bool owned_ = false;
};

}  // namespace rota::vk
