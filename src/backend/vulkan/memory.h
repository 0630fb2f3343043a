#pragma once

#include <memory>
#include <optional>

#include "backend/vulkan/context.h"
#include "runtime/backend.h"

namespace rota::vk {

// What memory is for.
enum class Use : std::uint8_t {
  device,    // by kernels
  upload,    // written by the host, once, and read by kernels
  download,  // written by a copy, and read by the host
};

// The memory type to allocate from, of those in `allowed` (a bit per type). Device memory that the host sees, too, is
// taken for caches only where all of the device's memory is like that, and not the small window that some cards offer.
// Uploads take the window, unless it is tiny: kernels read them without the bus.
std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed,
                                           Use use);

class BufferMemory : public runtime::Memory {
 public:
  static Result<std::shared_ptr<BufferMemory>> create(std::shared_ptr<Context> context, std::uint64_t bytes, Use use);

  // An engine's, which is not destroyed here.
  static std::shared_ptr<BufferMemory> wrap(const vulkan::ForeignBuffer& foreign);

  VkBuffer buffer() const noexcept { return handles_.buffer; }
  VkBufferUsageFlags usage() const noexcept { return handles_.usage; }

  // Whether the host's reads go through its caches. Where they do not, a copy on the device is faster.
  bool is_cached() const noexcept { return handles_.cached; }

  // Owned while it is made, so that no failure leaks.
  struct Handles {
    explicit Handles(std::shared_ptr<Context> made_on) noexcept : context(std::move(made_on)) {}
    Handles(Handles&&) noexcept;
    ~Handles();
    Status make(std::uint64_t bytes, Use use);
    Result<VkMemoryRequirements> make_sparse(std::uint64_t bytes);  // to be bound block by block
    Status make_buffer(std::uint64_t bytes, VkBufferCreateFlags flags);
    VkResult allocate(const VkMemoryRequirements& needs, Use use);

    std::shared_ptr<Context> context;  // null: nothing is owned
    std::shared_ptr<const void> keep;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    void* host = nullptr;
    bool cached = true;
    uint32_t type = 0;
    VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  };

 protected:
  BufferMemory(std::uint64_t bytes, Handles handles) noexcept
      : Memory(bytes, static_cast<std::byte*>(handles.host)), handles_(std::move(handles)) {}

 private:
  Handles handles_;
};

}  // namespace rota::vk
