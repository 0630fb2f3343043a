#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ops/attend/online_softmax.h"
#include "ops/attend/page_means.h"
#include "ops/attend/side_memory.h"

// Sealed tiles, multiplied as bytes (ADR 0015).

namespace rota::ops {

// How the tiles of one side are multiplied.
enum class TileWay : std::uint8_t { codes, levels, matrix };  // as they are, or each decoded before

struct TileWork {
  TileWay way = TileWay::codes;
  std::uint32_t bits = 0, vectors = 0;  // some of which may be nothing
  std::uint32_t queries = 0;            // what vectors of one or two terms are

  QuadPlaces places(const TileOrder& order, const VectorBlock& block) const noexcept {
    const std::uint32_t cells = way == TileWay::codes ? group_cells(bits) : 1;
    return {cells, order.quads_together, std::uint64_t{4} * std::max(order.quads_together, 1U) * block.size};
  }
};

// A kernel that wants fewer bytes of a vector than a register holds reads a whole one.
inline constexpr std::size_t kReadBeyond = 16;

// Kernels by bits and by 1 << i vectors.
template <class Kernel>
using TileKernels = std::array<std::array<Kernel, kBlockSizes>, kWidths>;

// The levels of a single block of vectors need not be written down, nor do those that are codes but for a sign. A
// matrix unit wants levels, and is faster from two blocks on.
template <class Kernel>
TileWork tile_work(const SideMemory& side, const TileKernels<Kernel>& kernels, const AttendSimd& simd,
                   std::uint32_t queries) noexcept {
  const std::uint32_t terms = terms_of(side.bits());
  const std::uint32_t vectors = queries * terms;
  const std::uint32_t decoded = terms == 2 ? kDecodedTwice : kDecoded;
  if (simd.matrix != nullptr && vectors > 8) return {TileWay::matrix, decoded, vectors, queries};
  const std::uint32_t cells = group_cells(side.bits()) * std::max(simd.tile.order.quads_together, 1U);
  const bool whole_groups = side.dim() / 4 % cells == 0;
  const bool has_kernels = kernels[side.bits()].back() != nullptr;
  if (!has_kernels || !whole_groups || (vectors > 8 && side.bits() != 8)) {
    return {TileWay::levels, decoded, vectors, queries};
  }
  const std::uint32_t padded = vectors > 8 ? vectors : std::bit_ceil(vectors);
  return {TileWay::codes, side.bits(), padded, padded / terms};
}

// One side's tiles of a key block.
//
// While tiles are multiplied, as many lines are prefetched of the next block's, in four streams of one length. What is
// left of them, where the next block has more tiles, is prefetched afterwards.
//
//   tiles of the next block    |  0  |  1  |  2  |  3  |      |  0  |  1  |      |  0  |
//   streams                    |  0  |  1  |  2  |  3  |      | 0| 1| 2| 3|      |0|1|2|3|
class SealedTiles {
 public:
  SealedTiles(const SideMemory& memory, const TileOrder& order, MatrixScratch& scratch) noexcept;

  void prefetch(const HeadBlock& first) noexcept;
  void advance(const BlockPair& blocks) noexcept;
  void prefetch_rest() const noexcept;

  const Tiles& tiles() const noexcept { return tiles_; }
  std::uint64_t first() const noexcept { return first_; }  // tile's index in the block

  // Calls call(tiles, the first one's number, kernel, first vector) for each block of vectors.
  template <class Kernel, class Call>
  void multiply(const TileWork& work, const TileKernels<Kernel>& kernels, DecodeTile decode,
                const Call& call) noexcept {
    const auto call_blocks = [&](const Tiles& some, std::uint64_t nth) {
      for (std::uint32_t first = 0; first < work.vectors;) {
        const std::uint32_t size = block_of(first, work.vectors).size;
        call(some, nth, kernels[work.bits][static_cast<std::size_t>(std::countr_zero(size))], first);
        first += size;
      }
    };
    if (work.way == TileWay::codes) {
      call_blocks(tiles_, 0);
      return;
    }
    std::byte* const levels = scratch_.levels[0];
    Tiles one = tiles_;
    one.count = 1;
    for (std::uint64_t nth = 0; nth < tiles_.count; ++nth) {
      decode(tiles_, tiles_.at[nth], levels);
      one.at[0] = {.low = levels, .high = levels, .scales = tiles_.at[nth].scales, .prefetches = {}};
      call_blocks(one, nth);
    }
  }

  MatrixWork in_matrix(const TileWork& work, DecodeTile decode) const noexcept {
    return {decode, scratch_, work.vectors};
  }

 private:
  const SideMemory& memory_;
  MatrixScratch& scratch_;
  PrefetchedBlocks<TileAddresses, &SideMemory::locate_tiles> addresses_;
  Tiles tiles_{};
  std::uint64_t first_ = 0;
  std::array<const std::byte*, kBlockTiles> streams_{};
  std::uint64_t stream_bytes_ = 0;
  alignas(64) std::uint8_t table_[64];
};

class SealedKeys {
 public:
  SealedKeys(const SideMemory& memory, const AttendSimd& simd, MatrixScratch& scratch, PageMeans& means) noexcept
      : memory_(memory), simd_(simd), means_(means), tiles_(memory, simd.tile.order, scratch) {}

  void prefetch(const HeadBlock& first) noexcept { tiles_.prefetch(first); }
  void begin_tile(const QueryVectors& vectors) noexcept;
  void find_logits(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  void quantize(const QueryVectors& vectors, std::uint32_t i) noexcept;

  const SideMemory& memory_;
  const AttendSimd& simd_;
  PageMeans& means_;
  SealedTiles tiles_;
  TileWork work_;
  float query_scale_[kCpuVectors];
  std::int32_t starts_[2 * kCpuVectors];
  alignas(64) std::byte query_bytes_[std::size_t{2} * kCpuVectors * kMaxAttendDim + kReadBeyond];
};

class SealedValues {
 public:
  SealedValues(const SideMemory& memory, const AttendSimd& simd, MatrixScratch& scratch) noexcept
      : memory_(memory), simd_(simd), tiles_(memory, simd.tile.order, scratch) {}

  void prefetch(const HeadBlock& first) noexcept { tiles_.prefetch(first); }
  void begin_tile(std::uint32_t vectors) noexcept { work_ = tile_work(memory_, simd_.tile.add_values, simd_, vectors); }
  void add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  // Where a vector's bytes begin in the first tile, and those of the next vector.
  struct VectorPlace {
    std::uint32_t vector;
    std::byte* at;
    std::uint64_t to_next;
  };

  VectorPlace place_of(std::uint32_t vector) noexcept;
  void weigh(const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;
  void clear(const VectorPlace& place, std::uint32_t terms) noexcept;

  const SideMemory& memory_;
  const AttendSimd& simd_;
  SealedTiles tiles_;
  TileWork work_;
  alignas(64) float value_scales_[kKeyBlock] = {};
  float weight_scales_[kCpuVectors * kBlockTiles];
  std::uint32_t quads_[kTileTokens / 4];  // of the block whose vectors are weighed
  std::int32_t weight_starts_[2 * kCpuVectors * kBlockTiles];
  alignas(64) std::byte weight_bytes_[std::size_t{2} * kCpuVectors * kKeyBlock + kReadBeyond];
};

}  // namespace rota::ops
