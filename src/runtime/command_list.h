#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/extent.h"
#include "runtime/command.h"
#include "runtime/trace.h"

namespace rota::runtime {

// Memory that commands use, and how.
struct UsedMemory {
  std::shared_ptr<Memory> memory;
  bool read = false, written = false;
};
using UsedMemories = std::vector<UsedMemory>;

// Commands in the order of recording, with what they point to.
//
//   commands:  | kernel, constants, dispatch, params*, bindings* | ...
//   blocks:    | params | bindings | params | bindings ...      |    never move
//   memories:  each once, however many commands use it
class CommandList {
 public:
  // Adds a command, with copies of its params and bindings.
  void add(Command command) {
    for (const Binding& binding : command.bindings) {
      UsedMemory& used = find(*binding.memory);
      (binding.access == Access::write ? used.written : used.read) = true;
    }
    command.params = copy(command.params);
    command.bindings = copy(command.bindings);
    if (commands_.empty()) commands_.reserve(kFirstCommands);
    commands_.push_back(command);
  }

  // Before a command names it, for memory whose owner is not the one that made it: a block that returns to its pool.
  void keep(std::shared_ptr<Memory> memory) {
    if (!memories_) memories_ = std::make_shared<UsedMemories>();
    memory->number_in_list.store(static_cast<std::uint32_t>(memories_->size()), std::memory_order_relaxed);
    memories_->push_back({std::move(memory)});
  }

  // What a trace says of each command; empty if nobody wants to know.
  std::vector<TraceNote> notes = {};

  std::size_t size() const noexcept { return commands_.size(); }
  std::span<const Command> all() const noexcept { return commands_; }
  std::shared_ptr<const UsedMemories> memories() const noexcept { return memories_; }  // null: none

 private:
  UsedMemory& find(Memory& memory) {
    const std::uint32_t number = memory.number_in_list.load(std::memory_order_relaxed);
    if (memories_ && number < memories_->size() && (*memories_)[number].memory.get() == &memory) {
      return (*memories_)[number];
    }
    if (memories_) {  // another list, perhaps of another thread, has named it since
      const auto is_it = [&](const UsedMemory& used) { return used.memory.get() == &memory; };
      if (const auto found = std::ranges::find_if(*memories_, is_it); found != memories_->end()) return *found;
    }
    keep(memory.shared_from_this());
    return memories_->back();
  }

  template <class T>
  std::span<const T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const std::size_t bytes = core::round_up(items.size_bytes(), kAlignment);
    if (blocks_.empty() || block_bytes_ - used_bytes_ < bytes) {
      block_bytes_ = std::max(2 * block_bytes_, bytes);
      blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block_bytes_));
      used_bytes_ = 0;
    }
    T* const to = reinterpret_cast<T*>(blocks_.back().get() + used_bytes_);
    used_bytes_ += bytes;
    std::uninitialized_copy(items.begin(), items.end(), to);
    return {to, items.size()};
  }

  static constexpr std::size_t kAlignment = 8, kFirstCommands = 32;

  std::vector<Command> commands_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::size_t block_bytes_ = std::size_t{8} << 10, used_bytes_ = 0;  // of the last block
  std::shared_ptr<UsedMemories> memories_;
};

}  // namespace rota::runtime
