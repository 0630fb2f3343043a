#pragma once

#include <memory>
#include <optional>

#include "backend/vulkan/context.h"
#include "runtime/backend.h"

namespace rota::vulkan {

// The memory type to allocate from, of those in `allowed` (a bit per type). Device memory that the
// host sees, too, is taken only where all of the device's memory is like that: the small window that
// some cards offer is not for caches.
std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed,
                                           runtime::MemoryKind kind);

class BufferMemory final : public runtime::Memory {
 public:
  static Result<std::shared_ptr<BufferMemory>> create(const std::shared_ptr<Context>& context, std::uint64_t bytes,
                                                      runtime::MemoryKind kind);
  ~BufferMemory() override;

  VkBuffer buffer() const noexcept { return handles_.buffer; }

 private:
  struct Handles {
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    void* host = nullptr;
  };
  static Status make(Context& context, std::uint64_t bytes, runtime::MemoryKind kind, Handles& handles);
  static void destroy(Context& context, const Handles& handles) noexcept;

  BufferMemory(std::shared_ptr<Context> context, std::uint64_t bytes, const Handles& handles) noexcept
      : Memory(bytes, static_cast<std::byte*>(handles.host)), context_(std::move(context)), handles_(handles) {}

  std::shared_ptr<Context> context_;
  Handles handles_;
};

}  // namespace rota::vulkan
