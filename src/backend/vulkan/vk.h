#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/vulkan/functions.h"
#include "rota/result.h"

namespace rota::vk {

std::string_view result_name(VkResult result) noexcept;

// A driver's answer as an Error: "<what>: VK_ERROR_...".
Error driver_error(std::string_view what, VkResult result);

// As Vulkan counts; the longest duration is without end.
inline std::uint64_t driver_timeout(std::chrono::nanoseconds timeout) noexcept {
  return timeout == std::chrono::nanoseconds::max() ? ~std::uint64_t{0} : static_cast<std::uint64_t>(timeout.count());
}

// Vulkan's usual way to list things: ask for the count, then for the items, until both agree.
template <class Count = uint32_t, class Item, class Enumerate>
VkResult enumerate(std::vector<Item>& items, Enumerate&& call) {
  VkResult result = VK_INCOMPLETE;
  while (result == VK_INCOMPLETE) {
    Count count = 0;
    if (result = call(&count, nullptr); result != VK_SUCCESS) return result;
    items.resize(count);
    result = call(&count, items.data());
    items.resize(count);
  }
  return result;
}

}  // namespace rota::vk
