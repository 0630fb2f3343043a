#include "backend/vulkan/memory.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace rota::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kHostAccess =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

}  // namespace

std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed,
                                           runtime::MemoryKind kind) {
  const auto heap_size = [&](uint32_t type) {
    return properties.memoryHeaps[properties.memoryTypes[type].heapIndex].size;
  };
  const auto first_with = [&](VkMemoryPropertyFlags wanted, VkDeviceSize min_heap) -> std::optional<uint32_t> {
    for (uint32_t type = 0; type < properties.memoryTypeCount; ++type) {
      const bool has_all = (properties.memoryTypes[type].propertyFlags & wanted) == wanted;
      if ((allowed >> type & 1U) != 0 && has_all && heap_size(type) >= min_heap) return type;
    }
    return std::nullopt;
  };
  if (kind == runtime::MemoryKind::upload) return first_with(kHostAccess, 0);

  VkDeviceSize largest_local = 0;
  for (uint32_t type = 0; type < properties.memoryTypeCount; ++type) {
    const bool local = (properties.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
    if (local && (allowed >> type & 1U) != 0) {
      largest_local = std::max(largest_local, heap_size(type));
    }
  }
  if (auto type = first_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | kHostAccess, largest_local)) return type;
  if (auto type = first_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, largest_local)) return type;
  return first_with(0, 0);
}

BufferMemory::Handles::Handles(Handles&& other) noexcept
    : context(std::move(other.context)),
      buffer(std::exchange(other.buffer, VK_NULL_HANDLE)),
      memory(std::exchange(other.memory, VK_NULL_HANDLE)),
      host(std::exchange(other.host, nullptr)) {}

BufferMemory::Handles::~Handles() {
  if (!context) return;  // moved from
  context->vk.vkDestroyBuffer(context->device, buffer, nullptr);
  context->vk.vkFreeMemory(context->device, memory, nullptr);
}

Status BufferMemory::Handles::make(std::uint64_t bytes, runtime::MemoryKind kind) {
  const VkBufferCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = core::round_up(bytes, runtime::kBindingAlignment),
      .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
      .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
  const auto failed = [&](std::string_view call, VkResult result) {
    return context->failed(core::text("allocate: {} for {} bytes", call, bytes), result);
  };
  if (const VkResult result = context->vk.vkCreateBuffer(context->device, &create, nullptr, &buffer);
      result != VK_SUCCESS) {
    return failed("vkCreateBuffer", result);
  }
  VkMemoryRequirements needs;
  context->vk.vkGetBufferMemoryRequirements(context->device, buffer, &needs);
  const auto type = choose_memory_type(context->memory_properties, needs.memoryTypeBits, kind);
  if (!type) return Error{Errc::unsupported, "allocate: the device has no memory that buffers may use"};

  const VkMemoryAllocateInfo allocate{
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = *type};
  if (const VkResult result = context->vk.vkAllocateMemory(context->device, &allocate, nullptr, &memory);
      result != VK_SUCCESS) {
    return failed("vkAllocateMemory", result);
  }
  if (const VkResult result = context->vk.vkBindBufferMemory(context->device, buffer, memory, 0);
      result != VK_SUCCESS) {
    return failed("vkBindBufferMemory", result);
  }
  const bool visible = (context->memory_properties.memoryTypes[*type].propertyFlags & kHostAccess) == kHostAccess;
  if (!visible || (kind == runtime::MemoryKind::device && !context->maps_device_memory)) return {};
  if (const VkResult result = context->vk.vkMapMemory(context->device, memory, 0, VK_WHOLE_SIZE, 0, &host);
      result != VK_SUCCESS) {
    return failed("vkMapMemory", result);
  }
  return {};
}

Result<std::shared_ptr<BufferMemory>> BufferMemory::create(std::shared_ptr<Context> context, std::uint64_t bytes,
                                                           runtime::MemoryKind kind) {
  Handles handles(std::move(context));
  if (Status status = handles.make(bytes, kind); !status) return status.error();
  return std::shared_ptr<BufferMemory>(new BufferMemory(bytes, std::move(handles)));
}

}  // namespace rota::vulkan
