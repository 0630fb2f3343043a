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
    items += commands[count].dispatch.items;
    stage.last_[count++] = items;
  }
  stage.commands_ = commands.first(count);
  return stage;
}

std::uint64_t Stage::item_bytes(std::size_t command) const noexcept {
  return std::max<std::uint64_t>(commands_[command].dispatch.item_bytes, 1);
}

std::uint64_t Stage::bytes_from(std::uint64_t item) const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::uint64_t items = last_[i] - std::min(last_[i], item);
    bytes += std::min(detail::saturating_multiply(items, item_bytes(i)), kMostBytes);
    item = std::max(item, last_[i]);
  }
  return bytes;
}

std::uint64_t Stage::slice_end(std::uint64_t begin, std::uint64_t slices, std::uint64_t least_bytes) const noexcept {
  std::uint64_t room = std::max(bytes_from(begin) / slices, least_bytes);
  std::uint64_t end = begin;
  for (std::size_t i = 0; i < size(); ++i) {
    if (last_[i] <= end) continue;
    const std::uint64_t items = std::min(last_[i] - end, room / item_bytes(i));
    end += items;
    room -= items * item_bytes(i);
    if (end < last_[i]) break;
  }
  return std::max(end, begin + 1);
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
