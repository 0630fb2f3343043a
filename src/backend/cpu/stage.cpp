#include "backend/cpu/stage.h"

#include <algorithm>

namespace rota::cpu {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // of a command, so that their sum is a number

}  // namespace

Stage Stage::first_of(std::span<const runtime::Command> commands) noexcept {
  Stage stage;
  for (const runtime::Command& command : commands) {
    if (stage.count_ == kMost || (stage.count_ > 0 && command.barrier_before)) break;
    stage.add(command);
  }
  return stage;
}

void Stage::add(const runtime::Command& command) noexcept {
  const runtime::Dispatch& dispatch = command.dispatch;
  last_[count_] = (count_ == 0 ? 0 : last_[count_ - 1]) + dispatch.items;
  parts_[count_++] = {command.kernel->cpu, command.cpu_call()};
  const std::uint64_t item_bytes = std::max<std::uint64_t>(dispatch.item_bytes, 1);
  bytes_ += std::min(detail::saturating_multiply(dispatch.items, item_bytes), kMostBytes);
}

std::uint64_t Stage::items_of(std::uint64_t bytes) const noexcept {
  return items() == 0 ? 0 : bytes / std::max<std::uint64_t>(bytes_ / items(), 1);
}

void Stage::run(const core::SharedLoop::Slice& slice, runtime::WorkerScratch* scratch) const noexcept {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < count_; first = last_[i++]) {
    if (slice.begin >= last_[i] || slice.end <= first) continue;
    runtime::CpuCall share = parts_[i].call;
    share.first_item = std::max(slice.begin, first) - first;
    share.last_item = std::min(slice.end, last_[i]) - first;
    share.next_item = slice.next && *slice.next < last_[i] ? *slice.next - first : share.last_item - 1;
    share.scratch = scratch;
    parts_[i].kernel(share);
  }
}

}  // namespace rota::cpu
