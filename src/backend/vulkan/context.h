#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "backend/vulkan/instance.h"
#include "backend/vulkan/vk.h"
#include "rota/vulkan.h"

namespace rota::vk {

// A logical device and its functions. What was made on it shares it, so it goes last. The functions
// are plain pointers: tests put failing ones in their place.
class Context {
 public:
  static Result<std::shared_ptr<Context>> create(std::shared_ptr<Instance> instance, VkPhysicalDevice physical);

  // An engine's device, which is not destroyed here.
  static Result<std::shared_ptr<Context>> adopt(std::shared_ptr<Instance> instance, const vulkan::Adoption& adoption);
  ~Context();

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // As driver_error, and remembers a lost device.
  Error failed(std::string_view what, VkResult result);

  void lose() noexcept { lost_ = true; }

  // An error once the device is lost.
  Status alive() const;

  bool is_adopted() const noexcept { return !owned_; }

  // An error if the device was adopted without a queue, with the call that needs one.
  Status check_queue(std::string_view call) const;

  // An error if the device has no timeline semaphores.
  Status check_timelines(std::string_view call) const;

  // The only place that submits to the queue. Without a submission the fence alone.
  VkResult submit(const VkSubmitInfo* submission, VkFence fence);

  // Of sparse buffers' blocks. Precondition: the device has such buffers, and is ours.
  VkResult bind_sparse(const VkBindSparseInfo& info, VkFence fence);

  // Whether the fence was signaled before the deadline, or the device was lost. Whatever fails meanwhile, it waits.
  bool outlasts(VkFence fence, std::chrono::steady_clock::time_point deadline) const noexcept;

  VkDevice device = VK_NULL_HANDLE;
  DeviceFunctions vk{};
  uint32_t queue_family = 0;
  VkPhysicalDeviceProperties properties{};
  VkPhysicalDeviceMemoryProperties memory_properties{};
  bool maps_device_memory = true;   // off, every copy is staged, as on a card whose memory the host cannot see
  bool pushes_descriptors = false;  // off, they come from pools; fixed before the first pipeline is built
  std::uint64_t most_submitted_bytes = std::uint64_t{1} << 30;  // about what one submission may move: see Submission
  std::chrono::nanoseconds patience{std::chrono::nanoseconds::max()};  // with work that the caller must let go on

 private:
  Context() = default;
  void look_at(VkPhysicalDevice physical);

  std::shared_ptr<Instance> instance_;
  bool owned_ = false;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkQueue sparse_queue_ = VK_NULL_HANDLE;  // may be the same
  std::mutex queue_mutex_;
  std::function<void(const std::function<void()>&)> with_queue_;
  std::atomic<bool> lost_ = false;
};

}  // namespace rota::vk
