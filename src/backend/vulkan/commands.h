#pragma once

#include <memory>
#include <vector>

#include "backend/vulkan/context.h"
#include "backend/vulkan/timestamps.h"
#include "runtime/backend.h"

namespace rota::vk {

// One side of a barrier.
struct Scope {
  VkPipelineStageFlags stages;
  VkAccessFlags access;
};

void barrier(const Context& context, VkCommandBuffer commands, const Scope& from, const Scope& to);

// A batch, and the descriptors that its commands need. Whoever writes it into a command buffer keeps it until that has
// run.
class Commands {
 public:
  explicit Commands(std::shared_ptr<Context> context) noexcept : context_(std::move(context)), times_(context_) {}
  ~Commands();

  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  // Takes a batch and makes all that may fail.
  Status take(runtime::Batch batch);

  // How many commands, one after the other, go into submissions of about `most_bytes` of work at most.
  std::vector<std::size_t> parts(std::uint64_t most_bytes) const;

  // Commands of the batch, `count` of them from `first` on.
  void write(VkCommandBuffer to, std::size_t first, std::size_t count) const noexcept;
  void write(VkCommandBuffer to) const noexcept { write(to, 0, batch_.commands.size()); }

  // Lets go of the batch, and tells its trace. Precondition: what was written has run, or never will.
  void release() noexcept;

  // Whether a command would conflict with such an access to the memory.
  bool conflict(const runtime::Memory& memory, Access access) const { return batch_.conflicts(memory, access); }

 private:
  Status reserve_sets(std::size_t count);
  Status make_sets();
  void write_command(VkCommandBuffer to, const runtime::Command& command, std::size_t index) const noexcept;

  std::shared_ptr<Context> context_;
  runtime::Batch batch_;
  Timestamps times_;
  VkDescriptorPool pool_ = VK_NULL_HANDLE;
  std::size_t pool_sets_ = 0;
  std::vector<VkDescriptorSet> sets_;  // one per command; none where descriptors are pushed
};

}  // namespace rota::vk
