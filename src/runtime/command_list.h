#pragma once

#include <cstddef>
#include <ranges>
#include <vector>

#include "runtime/command.h"

namespace rota::runtime {

// Commands in the order of recording. The list grows by blocks, so that a command never moves.
class CommandList {
 public:
  // Adds a command, to be filled in.
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
