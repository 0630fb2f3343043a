#pragma once

#include <cstddef>
#include <memory>

#include "backend/vulkan/context.h"
#include "runtime/backend.h"

namespace rota::vk {

// When each command of a batch ran, for a trace: two times for each. A device without timestamps gives none.
class Timestamps {
 public:
  explicit Timestamps(std::shared_ptr<Context> context) noexcept : context_(std::move(context)) {}
  ~Timestamps() { context_->vk.vkDestroyQueryPool(context_->device, pool_, nullptr); }

  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  Status reserve(std::size_t commands);

  // Before commands of a command buffer, `count` of them from `first` on, and around each.
  void reset(VkCommandBuffer to, std::size_t first, std::size_t count) const noexcept;
  void begin(VkCommandBuffer to, std::size_t command) const noexcept;
  void end(VkCommandBuffer to, std::size_t command) const noexcept;

  // Tells of commands that have run; those that have not are left out.
  void report(const runtime::BatchTrace& trace, std::size_t commands) const noexcept;

 private:
  std::shared_ptr<Context> context_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  std::size_t commands_ = 0;  // that it has room for
};

}  // namespace rota::vk
