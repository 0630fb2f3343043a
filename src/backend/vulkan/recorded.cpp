#include "backend/vulkan/recorded.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace rota::vk {
namespace {

constexpr VkAccessFlags kAnyAccess = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
constexpr Scope kOthers{VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, kAnyAccess};
// Whoever reads through a mapping waits for the timeline, which makes nothing visible to the host.
constexpr Scope kOthersAndHost{VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT,
                               kAnyAccess | VK_ACCESS_HOST_READ_BIT};
constexpr Scope kOurs{VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};

}  // namespace

Result<std::list<Recorded>> RecordedBatches::write(runtime::Batch batch, const vulkan::Recording& recording) {
  std::uint64_t now = 0;
  const VkResult result = context_->vk.vkGetSemaphoreCounterValue(context_->device, recording.done.semaphore, &now);
  if (result != VK_SUCCESS) return context_->failed("record: vkGetSemaphoreCounterValue", result);
  if (now >= recording.done.value) {
    return core::refuse({"record", {"done.value"}}, recording.done.value,
                        "more than {}, which the semaphore has reached", now);
  }
  std::list<Recorded> one;
  Recorded& recorded = one.emplace_back(context_);
  recorded.done = recording.done;
  if (Status status = recorded.commands.take(std::move(batch)); !status) return status.error();

  const vulkan::Edges edges = recording.edges;
  if (edges == vulkan::Edges::both || edges == vulkan::Edges::before) {
    barrier(*context_, recording.commands, kOthers, kOurs);
  }
  recorded.commands.write(recording.commands);
  if (edges == vulkan::Edges::both || edges == vulkan::Edges::after) {
    barrier(*context_, recording.commands, kOurs, kOthersAndHost);
  }
  return one;
}

void RecordedBatches::add(std::list<Recorded> one, std::uint64_t ticket) noexcept {
  one.front().ticket = ticket;
  const std::lock_guard lock(mutex_);
  batches_->splice(batches_->end(), one);
}

bool RecordedBatches::reached(const vulkan::TimelinePoint& point) const noexcept {
  std::uint64_t now = 0;
  const VkResult result = context_->vk.vkGetSemaphoreCounterValue(context_->device, point.semaphore, &now);
  if (result == VK_ERROR_DEVICE_LOST) context_->lose();
  return result == VK_SUCCESS && now >= point.value;
}

void RecordedBatches::reclaim() noexcept {
  std::list<Recorded> ended;  // goes without the lock: what it holds may be the last of much
  {
    const std::lock_guard lock(mutex_);
    for (auto at = batches_->begin(); at != batches_->end();) {
      const auto next = std::next(at);
      if (reached(at->done)) ended.splice(ended.end(), *batches_, at);
      at = next;
    }
  }
  for (Recorded& batch : ended) batch.commands.release();
}

std::optional<vulkan::TimelinePoint> RecordedBatches::end_of(std::uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(*batches_, ticket, &Recorded::ticket);
  if (found == batches_->end()) return std::nullopt;
  return found->done;
}

Result<bool> RecordedBatches::wait_for(const vulkan::TimelinePoint& end, std::chrono::nanoseconds timeout) const {
  const VkSemaphoreWaitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                 .semaphoreCount = 1,
                                 .pSemaphores = &end.semaphore,
                                 .pValues = &end.value};
  const VkResult result = context_->vk.vkWaitSemaphores(context_->device, &wait, driver_timeout(timeout));
  if (result == VK_SUCCESS || result == VK_TIMEOUT) return result == VK_SUCCESS;
  return context_->failed("wait: vkWaitSemaphores", result);
}

Status RecordedBatches::check_apart(const runtime::Memory& memory, Access access) {
  reclaim();
  const std::lock_guard lock(mutex_);
  for (const Recorded& batch : *batches_) {
    if (!batch.commands.conflict(memory, access)) continue;
    return Error{Errc::busy,
                 core::text("{}: a command buffer that {} the buffer, by vulkan::record(), has not ended: its "
                            "semaphore has not reached {}; wait for its fence first",
                            access == Access::write ? "Buffer::write" : "Buffer::read",
                            access == Access::write ? "uses" : "writes", batch.done.value)};
  }
  return {};
}

void RecordedBatches::outlast(std::chrono::steady_clock::time_point deadline) noexcept {
  for (const Recorded& batch : *batches_) {
    const auto left =
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
    static_cast<void>(core::guarded([&] { return wait_for(batch.done, left); }));
  }
  reclaim();
  if (!batches_->empty() && context_->alive().ok()) runtime::leave(std::exchange(batches_, nullptr));
}

}  // namespace rota::vk
