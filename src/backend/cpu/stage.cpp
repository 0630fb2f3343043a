#include "backend/cpu/stage.h"

#include <algorithm>

namespace rota::cpu {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // of a command, so that their sum is a number

}  // namespace

Stage Stage::first_of(std::span<const runtime::Command> commands) noexcept {
  Stage stage;
  std::uint64_t items = 0;
  std::size_t count = 0;
  while (count < std::min(commands.size(), kMost) && (count == 0 || !commands[count].barrier_before)) {
    const runtime::Dispatch& dispatch = commands[count].dispatch;
    items += dispatch.items;
    stage.last_[count++] = items;
    const std::uint64_t item_bytes = std::max<std::uint64_t>(dispatch.item_bytes, 1);
    stage.bytes_ += std::min(detail::saturating_multiply(dispatch.items, item_bytes), kMostBytes);
  }
  stage.commands_ = commands.first(count);
  return stage;
}

std::uint64_t Stage::items_of(std::uint64_t bytes) const noexcept {
  return items() == 0 ? 0 : bytes / std::max<std::uint64_t>(bytes_ / items(), 1);
}

void Stage::run(const core::SharedLoop::Slice& slice, runtime::WorkerScratch* scratch) const noexcept {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < size(); first = last_[i++]) {
    if (slice.begin >= last_[i] || slice.end <= first) continue;
    runtime::CpuCall share = commands_[i].cpu_call();
    share.first_item = std::max(slice.begin, first) - first;
    share.last_item = std::min(slice.end, last_[i]) - first;
    share.next_item = slice.next && *slice.next < last_[i] ? *slice.next - first : share.last_item - 1;
    share.scratch = scratch;
    commands_[i].kernel->cpu(share);
  }
}

}  // namespace rota::cpu
