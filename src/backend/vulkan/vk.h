#pragma once

// clang-format off: the types, then the names, then what uses both
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>
#include <rota_volk_names.h>
#include <volk.h>
// clang-format on

#include <string_view>
#include <vector>

#include "rota/result.h"

namespace rota::vulkan {

std::string_view result_name(VkResult result) noexcept;

// A driver's answer as an Error: "<what>: VK_ERROR_...".
Error driver_error(std::string_view what, VkResult result);

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

}  // namespace rota::vulkan
