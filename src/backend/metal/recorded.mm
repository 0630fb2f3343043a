#include "backend/metal/recorded.h"

#include <algorithm>
#include <utility>

#include "backend/metal/commands.h"
#include "core/error.h"

namespace rota::mtl {

Result<std::list<Recorded>> RecordedBatches::write(runtime::Batch batch, const metal::Recording& recording) {
  @autoreleasepool {
    if (Status status = context_->alive(); !status) return status.error();
    std::list<Recorded> one;
    Recorded& recorded = one.emplace_back();
    recorded.batch = std::move(batch);
    tell_end(object_of<id<MTLCommandBuffer>>(recording.commands), recorded.completion);

    const id<MTLComputeCommandEncoder> encoder = object_of<id<MTLComputeCommandEncoder>>(recording.encoder);
    const metal::Edges edges = recording.edges;
    if (edges == metal::Edges::both || edges == metal::Edges::before) barrier(encoder);
    auto pipeline = recorded.batch.pipelines.begin();
    for (const runtime::Command& command : recorded.batch.commands.all()) {
      if (command.barrier_before) barrier(encoder);
      mtl::write(encoder, command, **pipeline++);
    }
    if (edges == metal::Edges::both || edges == metal::Edges::after) barrier(encoder);
    return one;
  }
}

void RecordedBatches::add(std::list<Recorded> one, std::uint64_t ticket) noexcept {
  one.front().ticket = ticket;
  const std::lock_guard lock(mutex_);
  batches_->splice(batches_->end(), one);
}

void RecordedBatches::reclaim() {
  std::list<Recorded> ended;  // goes without the lock: what it holds may be the last of much
  {
    const std::lock_guard lock(mutex_);
    for (auto at = batches_->begin(); at != batches_->end();) {
      const auto next = std::next(at);
      if (at->completion->is_over()) ended.splice(ended.end(), *batches_, at);
      at = next;
    }
  }
  for (const auto& [batch, completion, ticket] : ended) {
    // When commands ran in a command buffer of the engine's, only the engine can tell.
    const bool ran = batch.trace && completion->has_run();
    for (std::size_t command = 0; ran && command < batch.commands.size(); ++command) {
      batch.trace->ran(command, {}, {});
    }
    static_cast<void>(context_->lose_by("wait", *completion));
  }
}

std::shared_ptr<Completion> RecordedBatches::end_of(std::uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(*batches_, ticket, &Recorded::ticket);
  return found == batches_->end() ? nullptr : found->completion;
}

Status RecordedBatches::check_apart(const runtime::Memory& memory, Access access) {
  reclaim();
  const std::lock_guard lock(mutex_);
  for (const Recorded& recorded : *batches_) {
    if (!recorded.batch.conflicts(memory, access)) continue;
    return Error{Errc::busy,
                 core::text("{}: a command buffer that {} the buffer, by metal::record(), has not completed; wait for "
                            "its fence first",
                            access == Access::write ? "Buffer::write" : "Buffer::read",
                            access == Access::write ? "uses" : "writes")};
  }
  return {};
}

void RecordedBatches::outlast(std::chrono::steady_clock::time_point deadline) noexcept {
  for (const Recorded& batch : *batches_) batch.completion->wait_until(deadline);
  static_cast<void>(core::guarded([&]() -> Status {
    reclaim();
    return {};
  }));
  if (!batches_->empty()) runtime::leave(std::exchange(batches_, nullptr));
}

}  // namespace rota::mtl
