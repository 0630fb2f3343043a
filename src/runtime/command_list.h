#pragma once

#include <cstddef>
#include <ranges>
#include <vector>

#include "runtime/command.h"

namespace rota::runtime {

// Commands in their order. They never move: a list of many grows by blocks, not by copies of what is there.
class CommandList {
 public:
  // The new last one, to be filled in.
  Command& add() {
    constexpr std::size_t kBlockCommands = 32;
    if (blocks_.empty() || blocks_.back().size() == kBlockCommands) blocks_.emplace_back().reserve(kBlockCommands);
    Command& command = blocks_.back().emplace_back();
    ++size_;
    return command;
  }

  std::size_t size() const noexcept { return size_; }
  auto all() const noexcept { return std::views::join(blocks_); }

 private:
  std::vector<std::vector<Command>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace rota::runtime
