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
  static Result<std::shared_ptr<BufferMemory>> create(std::shared_ptr<Context> context, std::uint64_t bytes,
                                                      runtime::MemoryKind kind);

  VkBuffer buffer() const noexcept { return handles_.buffer; }

 private:
  // Owned while it is made, so that no failure leaks.
  struct Handles {
    explicit Handles(std::shared_ptr<Context> made_on) noexcept : context(std::move(made_on)) {}
    Handles(Handles&&) noexcept;
    ~Handles();
    Status make(std::uint64_t bytes, runtime::MemoryKind kind);

    std::shared_ptr<Context> context;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    void* host = nullptr;
  };

  BufferMemory(std::uint64_t bytes, Handles handles) noexcept
      : Memory(bytes, static_cast<std::byte*>(handles.host)), handles_(std::move(handles)) {}

  Handles handles_;
};

}  // namespace rota::vulkan
