#include "backend/vulkan/memory.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace rota::vk {
namespace {

constexpr VkMemoryPropertyFlags kHostAccess =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// Memory that only a device with a feature may allocate, which none of ours asks for.
constexpr VkMemoryPropertyFlags kNeedsAFeature =
    VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;

constexpr VkDeviceSize kLeastWindow = VkDeviceSize{128} << 20;  // less is left to what has no other place

}  // namespace

std::optional<uint32_t> choose_memory_type(const VkPhysicalDeviceMemoryProperties& properties, uint32_t allowed,
                                           Use use) {
  const auto heap_size = [&](uint32_t type) {
    return properties.memoryHeaps[properties.memoryTypes[type].heapIndex].size;
  };
  const auto first_with = [&](VkMemoryPropertyFlags wanted, VkDeviceSize min_heap) -> std::optional<uint32_t> {
    for (uint32_t type = 0; type < properties.memoryTypeCount; ++type) {
      const VkMemoryPropertyFlags flags = properties.memoryTypes[type].propertyFlags;
      const bool has_all = (flags & wanted) == wanted && (flags & kNeedsAFeature) == 0;
      if ((allowed >> type & 1U) != 0 && has_all && heap_size(type) >= min_heap) return type;
    }
    return std::nullopt;
  };
  if (use == Use::upload) {
    const auto window = first_with(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | kHostAccess, kLeastWindow);
    return window ? window : first_with(kHostAccess, 0);
  }
  if (use == Use::download) {
    const auto cached = first_with(VK_MEMORY_PROPERTY_HOST_CACHED_BIT | kHostAccess, 0);
    return cached ? cached : first_with(kHostAccess, 0);
  }

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
      keep(std::move(other.keep)),
      buffer(std::exchange(other.buffer, VK_NULL_HANDLE)),
      memory(std::exchange(other.memory, VK_NULL_HANDLE)),
      host(std::exchange(other.host, nullptr)),
      cached(other.cached),
      type(other.type),
      usage(other.usage) {}

BufferMemory::Handles::~Handles() {
  if (!context) return;  // moved from, or an engine's
  context->vk.vkDestroyBuffer(context->device, buffer, nullptr);
  context->vk.vkFreeMemory(context->device, memory, nullptr);
}

VkResult BufferMemory::Handles::allocate(const VkMemoryRequirements& needs, Use use) {
  uint32_t allowed = needs.memoryTypeBits;
  VkResult result = VK_ERROR_FEATURE_NOT_PRESENT;
  while (const auto chosen = choose_memory_type(context->memory_properties, allowed, use)) {
    type = *chosen;
    const VkMemoryAllocateInfo info{
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = type};
    result = context->vk.vkAllocateMemory(context->device, &info, nullptr, &memory);
    // A card's window is soon full, and the host's own memory serves uploads, too.
    if (result != VK_ERROR_OUT_OF_DEVICE_MEMORY || use != Use::upload) return result;
    allowed &= ~(uint32_t{1} << type);
  }
  return result;
}

Status BufferMemory::Handles::make_buffer(std::uint64_t bytes, VkBufferCreateFlags flags) {
  const VkBufferCreateInfo create{.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                  .flags = flags,
                                  .size = core::round_up(bytes, runtime::kBindingAlignment),
                                  .usage = usage,
                                  .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
  const VkResult result = context->vk.vkCreateBuffer(context->device, &create, nullptr, &buffer);
  if (result == VK_SUCCESS) return {};
  return context->failed(core::text("allocate: vkCreateBuffer for {} bytes", bytes), result);
}

Result<VkMemoryRequirements> BufferMemory::Handles::make_sparse(std::uint64_t bytes) {
  constexpr VkBufferCreateFlags kSparse = VK_BUFFER_CREATE_SPARSE_BINDING_BIT | VK_BUFFER_CREATE_SPARSE_RESIDENCY_BIT;
  if (Status status = make_buffer(bytes, kSparse); !status) return status.error();
  VkMemoryRequirements needs;
  context->vk.vkGetBufferMemoryRequirements(context->device, buffer, &needs);
  return needs;
}

Status BufferMemory::Handles::make(std::uint64_t bytes, Use use) {
  const auto failed = [&](std::string_view call, VkResult result) {
    return context->failed(core::text("allocate: {} for {} bytes", call, bytes), result);
  };
  if (Status status = make_buffer(bytes, 0); !status) return status;
  VkMemoryRequirements needs;
  context->vk.vkGetBufferMemoryRequirements(context->device, buffer, &needs);
  if (const VkResult result = allocate(needs, use); result != VK_SUCCESS) return failed("vkAllocateMemory", result);
  if (const VkResult result = context->vk.vkBindBufferMemory(context->device, buffer, memory, 0);
      result != VK_SUCCESS) {
    return failed("vkBindBufferMemory", result);
  }
  const VkMemoryPropertyFlags flags = context->memory_properties.memoryTypes[type].propertyFlags;
  cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  const bool visible = (flags & kHostAccess) == kHostAccess;
  if (!visible || (use == Use::device && !context->maps_device_memory)) return {};
  if (const VkResult result = context->vk.vkMapMemory(context->device, memory, 0, VK_WHOLE_SIZE, 0, &host);
      result != VK_SUCCESS) {
    return failed("vkMapMemory", result);
  }
  return {};
}

Result<std::shared_ptr<BufferMemory>> BufferMemory::create(std::shared_ptr<Context> context, std::uint64_t bytes,
                                                           Use use) {
  Handles handles(std::move(context));
  if (Status status = handles.make(bytes, use); !status) return status.error();
  return std::shared_ptr<BufferMemory>(new BufferMemory(bytes, std::move(handles)));
}

std::shared_ptr<BufferMemory> BufferMemory::wrap(const vulkan::ForeignBuffer& foreign) {
  Handles handles(nullptr);
  handles.keep = foreign.keep;
  handles.buffer = foreign.buffer;
  handles.host = foreign.host;
  handles.usage = foreign.usage;
  return std::shared_ptr<BufferMemory>(new BufferMemory(foreign.size_bytes, std::move(handles)));
}

}  // namespace rota::vk
