#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/vulkan/backend.h"
#include "harness/engine_calls.h"
#include "harness/on_device.h"
#include "harness/vulkan_engine.h"
#include "runtime/device_state.h"

namespace rota::test {

using EngineMemory = std::shared_ptr<VulkanEngine::Memory>;

class InEngine : public ::testing::Test {
 protected:
  void TearDown() override {
    adopted.reset();
    engine.reset();  // which reports what was not destroyed
    for (const std::string& message : log.take()) ADD_FAILURE() << "validation: " << message;
  }

  Device& adopt() {
    adopted = vulkan::adopt(engine->adoption()).value();
    return *adopted;
  }
  vk::Context& context() {
    return *dynamic_cast<vk::VulkanBackend&>(runtime::Inside::of(*adopted)->backend()).context();
  }
  Buffer wrapped(const EngineMemory& memory) { return vulkan::wrap(*adopted, VulkanEngine::foreign(memory)).value(); }
  vulkan::TimelinePoint next() { return {engine->timeline, ++last_value}; }

  ValidationLog log;
  std::unique_ptr<VulkanEngine> engine = std::make_unique<VulkanEngine>(log);
  std::optional<Device> adopted;
  std::uint64_t last_value = 0;
};

// What an engine does: fill, rope, fill, attend, copy, all in one command buffer.
class Chain {
 public:
  explicit Chain(VulkanEngine& engine, Device& device) : engine_(engine), device_(device) {
    for (EngineMemory* const memory : {&x_, &values_, &out_, &read_back}) *memory = engine.allocate(kBytes);
  }

  // `rope_edges` are those of the first recording.
  Fence record(VkCommandBuffer commands, vulkan::TimelinePoint done, vulkan::Edges rope_edges = vulkan::Edges::both) {
    engine_.fill(commands, *x_, 1.5F);
    Encoder first = device_.encoder();
    rotate(first, wrap(x_));
    vulkan::record(std::move(first), {.commands = commands, .done = done, .edges = rope_edges}).value().done().value();
    engine_.copy(commands, *x_, *values_);
    Encoder second = device_.encoder();
    attend_to(second, wrap(x_), wrap(values_), wrap(out_));
    Fence fence = vulkan::record(std::move(second), {.commands = commands, .done = done}).value();
    engine_.copy(commands, *out_, *read_back);
    // The engine reads on the host.
    const VkMemoryBarrier to_host{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                  .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                  .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    engine_.call<PFN_vkCmdPipelineBarrier>("vkCmdPipelineBarrier")(
        commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, nullptr, 0, nullptr);
    return fence;
  }

  EngineMemory read_back;

 private:
  Buffer wrap(const EngineMemory& memory) { return vulkan::wrap(device_, VulkanEngine::foreign(memory)).value(); }

  VulkanEngine& engine_;
  Device& device_;
  EngineMemory x_, values_, out_;
};

}  // namespace rota::test
