#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/shared_loop.h"
#include "runtime/backend.h"

namespace rota::cpu {

// Commands that do not wait for each other, as one loop: a thread that has no more of one begins with the next.
//
//   commands   A     | barrier | B,      C,       D        | barrier | E
//   stages     1     |         | 2                         |         | 3
//   items      0 ... |         | 0 .. 7, 8 .. 23, 24 .. 31 |         | 0 ...
class Stage {
 public:
  // The first of the commands, of which there is one at least. It is theirs as long as they are there.
  static Stage first_of(std::span<const runtime::Command> commands) noexcept;

  std::size_t size() const noexcept { return commands_.size(); }
  std::uint64_t items() const noexcept { return last_[size() - 1]; }
  std::uint64_t bytes() const noexcept { return bytes_from(0); }  // about what they move

  // Where a slice ends that begins at an item. It has a share of what is left to move: one of so many, but no less than
  // `least_bytes`, and one item at least.
  std::uint64_t slice_end(std::uint64_t begin, std::uint64_t slices, std::uint64_t least_bytes) const noexcept;

  // A slice's items, by a thread that computes in `scratch`.
  void run(const core::SharedLoop::Slice& slice, runtime::WorkerScratch* scratch) const noexcept;

 private:
  static constexpr std::size_t kMost = 8;

  std::uint64_t item_bytes(std::size_t command) const noexcept;
  std::uint64_t bytes_from(std::uint64_t item) const noexcept;

  std::span<const runtime::Command> commands_;
  std::array<std::uint64_t, kMost> last_{};  // one behind each one's items
};

}  // namespace rota::cpu
