#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/extent.h"

namespace rota::runtime {

// Smaller blocks would be many, and larger ones waste what pages do not fill. Backends take what their systems want if
// that is more.
inline constexpr std::uint64_t kSparseBlockBytes = 64U << 10;

// Which blocks of a sparse memory have something behind them: those that a committed range touches. Ranges end where a
// cache's pages do, so that neighbours may share a block:
//
//   ranges   [--- a ---)[--- b ---)
//   blocks   |    1    |    2    |    1    |     ranges that touch each
//
// Lists of ranges rise, and do not overlap.
class CommittedBlocks {
 public:
  explicit CommittedBlocks(std::uint64_t block_bytes) noexcept : block_bytes_(block_bytes) {}

  std::uint64_t block_bytes() const noexcept { return block_bytes_; }

  // Whole blocks that these ranges touch, and no others. Then add() of the ranges needs no memory.
  std::vector<core::ByteRange> missing(std::span<const core::ByteRange> ranges) {
    if (!ranges.empty()) {
      const std::uint64_t end = blocks_of(ranges.back()).end;
      if (counts_.size() < end) counts_.resize(end);
    }
    std::vector<core::ByteRange> blocks;
    add_unused(ranges, blocks);
    return blocks;
  }
  void add(std::span<const core::ByteRange> ranges) noexcept { count(ranges, 1); }

  // Whole blocks that would be unused without these ranges. Precondition: they were added.
  std::vector<core::ByteRange> only_in(std::span<const core::ByteRange> ranges) {
    std::vector<core::ByteRange> blocks;
    blocks.reserve(ranges.size());  // what is in one range alone lies together: from here on nothing throws
    remove(ranges);
    add_unused(ranges, blocks);
    add(ranges);
    return blocks;
  }
  void remove(std::span<const core::ByteRange> ranges) noexcept { count(ranges, -std::uint32_t{1}); }

 private:
  core::ByteRange blocks_of(const core::ByteRange& range) const noexcept {
    return {range.begin / block_bytes_, (range.end + block_bytes_ - 1) / block_bytes_};
  }

  void count(std::span<const core::ByteRange> ranges, std::uint32_t by) noexcept {
    for (const core::ByteRange& range : ranges) {
      const auto [begin, end] = blocks_of(range);
      for (std::uint64_t block = begin; block < end; ++block) counts_[block] += by;
    }
  }

  // In bytes. Neighbours are one.
  void add_unused(std::span<const core::ByteRange> ranges, std::vector<core::ByteRange>& found) const {
    std::uint64_t next = 0;
    for (const core::ByteRange& range : ranges) {
      const auto [begin, end] = blocks_of(range);
      for (next = std::max(next, begin); next < end; ++next) {
        if (counts_[next] != 0) continue;
        const std::uint64_t at = next * block_bytes_;
        if (found.empty() || found.back().end != at) found.push_back({at, at});
        found.back().end += block_bytes_;
      }
    }
  }

  std::uint64_t block_bytes_;
  std::vector<std::uint32_t> counts_;
};

}  // namespace rota::runtime
