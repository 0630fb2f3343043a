#pragma once

#include <vulkan/vulkan_core.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rota/buffer.h"
#include "rota/device.h"
#include "rota/encoder.h"
#include "rota/export.h"
#include "rota/result.h"

// Rota inside of an engine that uses Vulkan itself. rota.h does not include this header, which needs Vulkan's own.

namespace rota::inline ROTA_ABI::vulkan {

// What an engine has, and lends. All of it must outlive every handle that comes from the device: nothing of it is
// destroyed by Rota.
struct Adoption {
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;  // of the loader that made the instance
  VkInstance instance = VK_NULL_HANDLE;                        // made for Vulkan 1.1 or later
  VkPhysicalDevice physical_device = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  std::uint32_t queue_family = 0;    // that computes: of the queue, and of command buffers that record() gets
  VkQueue queue = VK_NULL_HANDLE;    // none: Rota submits nothing, and only record() takes commands
  bool timeline_semaphores = false;  // whether the device was made with this feature, in Vulkan 1.2 or as an extension
  std::vector<std::string> extensions = {};  // of the device that are enabled

  // Held around each use of the queue, which Vulkan allows one thread at a time: calls its argument once, and does not
  // throw. Without it a lock of Rota's own is taken, which suffices if nobody else uses the queue.
  std::function<void(const std::function<void()>&)> with_queue{};

  std::string pipeline_cache{};  // as DeviceOptions::pipeline_cache
  TraceSink trace{};             // as DeviceOptions::trace

  // How long the end of the last handle waits for work of which only the engine knows whether it will be done. What is
  // not done by then is left as it is: never freed, so that validation names it when the device is destroyed.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

// A device of Rota's on one of the engine's. Its id opens nothing.
ROTA_API Result<Device> adopt(const Adoption& adoption);

// A buffer of the engine's, bound to memory.
struct ForeignBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  std::uint64_t size_bytes = 0;  // as it was made: a multiple of 4
  // As it was made: with STORAGE_BUFFER. Where `host` is null, Buffer::read needs TRANSFER_SRC, and write TRANSFER_DST.
  VkBufferUsageFlags usage = 0;
  std::byte* host = nullptr;  // its first byte, if its memory is mapped, and coherent
  // Held until the last handle and the last command that uses the buffer are gone. The buffer must stay until then.
  std::shared_ptr<const void> keep = {};
};

// A buffer over one of the engine's: nothing is copied. Offsets are views' own.
ROTA_API Result<Buffer> wrap(const Device& device, const ForeignBuffer& foreign);

// A value of a timeline semaphore.
struct TimelinePoint {
  VkSemaphore semaphore = VK_NULL_HANDLE;
  std::uint64_t value = 0;
};

// What a submission waits for, and what it signals when all of it is done.
struct Order {
  std::vector<TimelinePoint> waits = {};
  std::vector<TimelinePoint> signals = {};
};

// As Encoder::submit(), in an order with the engine's own submissions. Semaphores must stay until it is done.
ROTA_API Result<Fence> submit(Encoder&& encoder, const Order& order);

// At which edges of what is recorded a memory barrier stands between it and all other commands. An edge without one is
// the engine's to guard.
enum class Edges : std::uint8_t { both, before, after, none };

// Where commands are recorded.
struct Recording {
  VkCommandBuffer commands = VK_NULL_HANDLE;  // of the adopted family, open, outside of a render pass; submitted once
  // What the submission of these commands will signal, and nothing before it. The semaphore must stay until the fence
  // says that it is done, or the last handle of the device is gone.
  TimelinePoint done = {};
  Edges edges = Edges::both;
};

// Records an encoder's commands instead of submitting them. The engine submits; until then nothing runs. The fence is
// done when the value is reached. After an error nothing was recorded. What was bound for compute is Rota's afterwards.
// docs/interop.md has the rules of order.
ROTA_API Result<Fence> record(Encoder&& encoder, const Recording& recording);

}  // namespace rota::inline ROTA_ABI::vulkan
