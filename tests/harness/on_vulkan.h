#pragma once

#include <random>
#include <vector>

#include "backend/vulkan/backend.h"
#include "harness/on_device.h"
#include "ops/store/store_reference.h"
#include "runtime/device_state.h"

namespace rota::vk {

inline VulkanBackend& backend_of(Device& device) {
  return dynamic_cast<VulkanBackend&>(runtime::Inside::of(device)->backend());
}

// Tests of the backend itself, with a small op to run.
class OnVulkan : public test::OnDevice {
 protected:
  test::PairUnderTest small_pair() {
    return test::make_pair(device, random, {.tokens = 4, .pool = {.page_slots = 8, .heads = 2, .dim = 6}});
  }
  const std::vector<test::Sequence> sequences{{.tokens = 4, .position = 6, .capacity = 8}};
  std::mt19937_64 random{3};
};

}  // namespace rota::vk
