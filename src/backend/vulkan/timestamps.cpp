#include "backend/vulkan/timestamps.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace rota::vk {
namespace {

constexpr std::size_t kMinCommands = 64;

uint32_t query_of(std::size_t command) noexcept { return static_cast<uint32_t>(2 * command); }

}  // namespace

Status Timestamps::reserve(std::size_t commands) {
  if (context_->properties.limits.timestampComputeAndGraphics == VK_FALSE || commands <= commands_) return {};
  context_->vk.vkDestroyQueryPool(context_->device, pool_, nullptr);
  pool_ = VK_NULL_HANDLE;
  commands_ = 0;
  const std::size_t wanted = std::max(commands, kMinCommands);
  const VkQueryPoolCreateInfo create{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                     .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                     .queryCount = query_of(wanted)};
  const VkResult result = context_->vk.vkCreateQueryPool(context_->device, &create, nullptr, &pool_);
  if (result != VK_SUCCESS) return context_->failed("submit: vkCreateQueryPool", result);
  commands_ = wanted;
  return {};
}

void Timestamps::reset(VkCommandBuffer to, std::size_t first, std::size_t count) const noexcept {
  if (pool_ != VK_NULL_HANDLE && count > 0) {
    context_->vk.vkCmdResetQueryPool(to, pool_, query_of(first), query_of(count));
  }
}

void Timestamps::begin(VkCommandBuffer to, std::size_t command) const noexcept {
  if (pool_ == VK_NULL_HANDLE) return;
  context_->vk.vkCmdWriteTimestamp(to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, pool_, query_of(command));
}

void Timestamps::end(VkCommandBuffer to, std::size_t command) const noexcept {
  if (pool_ == VK_NULL_HANDLE) return;
  context_->vk.vkCmdWriteTimestamp(to, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, pool_, query_of(command) + 1);
}

void Timestamps::report(const runtime::BatchTrace& trace, std::size_t commands) const noexcept {
  using std::chrono::nanoseconds;
  const auto period = static_cast<double>(context_->properties.limits.timestampPeriod);
  const auto time_of = [&](std::uint64_t ticks) {
    return nanoseconds(static_cast<nanoseconds::rep>(static_cast<double>(ticks) * period));
  };
  for (std::size_t command = 0; command < commands; ++command) {
    struct Query {
      std::uint64_t ticks, available;
    };
    std::array<Query, 2> queries{};
    if (pool_ == VK_NULL_HANDLE) {
      trace.ran(command, {}, {});
      continue;
    }
    const VkResult result = context_->vk.vkGetQueryPoolResults(
        context_->device, pool_, query_of(command), 2, sizeof(queries), queries.data(), sizeof(Query),
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WITH_AVAILABILITY_BIT);
    if (result != VK_SUCCESS || queries[0].available == 0 || queries[1].available == 0) continue;
    // A clock of fewer than 64 bits may have begun anew.
    const std::uint64_t ticks = queries[1].ticks - std::min(queries[0].ticks, queries[1].ticks);
    trace.ran(command, time_of(queries[0].ticks), time_of(ticks));
  }
}

}  // namespace rota::vk
