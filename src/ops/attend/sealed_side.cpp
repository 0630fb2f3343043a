#include "ops/attend/sealed_side.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace rota::ops {
namespace {

constexpr float kZeros[kMaxAttendDim] = {};

}  // namespace

SealedTiles::SealedTiles(const SideMemory& memory, MatrixScratch& scratch) noexcept
    : memory_(memory), scratch_(scratch) {
  if (!memory.sealed()) return;
  const int more = memory.layout().side == kKeys ? key_offset(memory.bits()) : 0;
  const std::size_t count = std::min(std::size_t{1} << memory.bits(), std::size(table_));
  for (std::uint32_t code = 0; code < count; ++code) {
    table_[code] = static_cast<std::uint8_t>(memory.level(code) + more);
  }
  for (std::size_t filled = count; filled < std::size(table_); filled *= 2) {
    std::memcpy(table_ + filled, table_, filled);
  }
  if (memory.bits() == 8) table_[0] = static_cast<std::uint8_t>(more ^ 128);  // codes are 128 more than their levels
}

void SealedTiles::advance(const BlockPair& blocks) noexcept {
  addresses_.advance(blocks, [&](const HeadBlock& block, TileAddresses& tiles) { memory_.locate_tiles(block, tiles); });
  const KeyRange& keys = blocks.now.keys;
  first_ = keys.begin % kKeyBlock / kTileTokens;
  const std::uint64_t last = (keys.end - 1) % kKeyBlock / kTileTokens;
  tiles_.count = 0;
  tiles_.dim = memory_.dim();
  tiles_.table = table_;
  for (std::uint64_t nth = first_; nth <= last; ++nth) {
    const std::uint64_t quarter = tiles_.count * (memory_.tile_size() / kBlockTiles);
    const TileAddress& address = addresses_.now()[nth];
    Tile& tile = tiles_.at[tiles_.count++];
    tile.low = address.low;
    tile.high = address.low + memory_.high_plane();
    tile.scales = address.scales;
    for (std::uint64_t i = 0; i < kBlockTiles; ++i) {
      tile.prefetches[i] = reinterpret_cast<std::uintptr_t>(addresses_.next()[i].low) + quarter;
    }
  }
}

// Rotated queries as bytes, or as two with a sign each. What vectors there are beyond them is nothing.
void SealedKeys::begin_tile(const QueryVectors& vectors) noexcept {
  work_ = tile_work(memory_, simd_.tile.dot_keys, simd_.matrix != nullptr, vectors.count());
  const std::size_t wanted = std::size_t{vectors.count()} * terms_of(memory_.bits());
  if (work_.vectors > wanted) std::fill_n(query_bytes_, work_.vectors * memory_.dim(), std::byte{0});
  std::fill(starts_ + wanted, starts_ + work_.vectors, 0);
  std::fill(query_scale_ + vectors.count(), query_scale_ + work_.queries, 0.0F);
  for (std::uint32_t i = 0; i < vectors.count(); ++i) quantize(vectors, i);
}

void SealedKeys::quantize(const QueryVectors& vectors, std::uint32_t i) noexcept {
  const std::uint32_t terms = terms_of(memory_.bits());
  const std::uint32_t dim = memory_.dim();
  const float most = terms == 2 ? 32512.0F : 127.0F;  // 127 * 256: what is left is a byte from -128 to 127
  // Vectors of a block lie quad by quad, those of a matrix in rows of their own.
  const bool in_rows = work_.way == TileWay::matrix;
  const VectorBlock block = in_rows ? VectorBlock{0, 1} : block_of(i * terms, work_.vectors);
  const std::size_t apart = in_rows ? dim : 4;
  std::byte* const quads = query_bytes_ + std::size_t{block.first} * dim + apart * (i * terms - block.first);
  const float largest = simd_.largest_magnitude(vectors.rotated(i), dim);
  const bool finite = std::isfinite(largest);
  query_scale_[i] =
      finite ? largest / most * vectors.logit_scale(i) * kLevelScale : std::numeric_limits<float>::quiet_NaN();
  const QuerySums sums = simd_.tile.quantize({.numbers = finite ? vectors.rotated(i) : kZeros,
                                              .dim = dim,
                                              .byte_scale = largest > kLeastInBytes && finite ? most / largest : 0.0F,
                                              .quads = quads,
                                              .low_quads = terms == 2 ? quads + apart : nullptr,
                                              .stride = std::uint64_t{4} * block.size});
  const std::int32_t offset = key_offset(memory_.bits());
  starts_[std::size_t{i} * terms] = -offset * sums.high;
  if (terms == 2) starts_[std::size_t{i} * terms + 1] = -offset * sums.low;
}

void SealedKeys::find_logits(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  tiles_.advance(blocks);
  const std::uint32_t queries = work_.queries;
  const std::uint64_t first_tile = tiles_.first() * kTileTokens;
  float means[kBlockTiles * kCpuVectors];
  for (std::uint64_t nth = 0; nth < tiles_.tiles().count; ++nth) {
    const std::uint64_t key = blocks.now.first() + first_tile + nth * kTileTokens;
    const float* const products = means_.products(vectors, blocks.now.of, key);
    for (std::uint32_t i = 0; i < queries; ++i) {
      means[nth * queries + i] = i < vectors.count() ? products[i] * vectors.logit_scale(i) : 0;
    }
  }
  float* const logits = softmax.logits() + first_tile;
  const DecodeTile decode = simd_.tile.decode_keys[memory_.bits()];
  if (work_.way == TileWay::matrix) {
    simd_.matrix->dot_keys[terms_of(memory_.bits()) - 1](
        tiles_.tiles(), {query_bytes_, starts_, query_scale_, means, queries, logits}, tiles_.in_matrix(work_, decode));
    return;
  }
  tiles_.multiply(
      work_, simd_.tile.dot_keys, decode, [&](const Tiles& some, std::uint64_t nth, DotKeys dot, std::uint32_t first) {
        dot(some, {query_bytes_, starts_, query_scale_, means + nth * queries, queries, logits + nth * kTileTokens},
            first);
      });
}

void SealedValues::add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  tiles_.advance(blocks);
  weigh(vectors, softmax);
  const auto weights_from = [&](std::uint64_t tile) -> ValueWeights {
    return {weight_bytes_ + tile * work_.vectors * kTileTokens, weight_scales_ + tile * work_.queries, work_.vectors,
            softmax.output(), softmax.stride()};
  };
  const DecodeTile decode = simd_.tile.decode_values[memory_.bits()];
  if (work_.way == TileWay::matrix) {
    simd_.matrix->add_values[terms_of(memory_.bits()) - 1](tiles_.tiles(), weights_from(tiles_.first()),
                                                           tiles_.in_matrix(work_, decode));
    return;
  }
  tiles_.multiply(work_, simd_.tile.add_values, decode,
                  [&](const Tiles& some, std::uint64_t nth, AddValues add_some, std::uint32_t first) {
                    add_some(some, weights_from(tiles_.first() + nth), first);
                  });
}

// Logits become weights times the values' scales, in bytes.
void SealedValues::weigh(const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  const std::uint32_t terms = terms_of(memory_.bits());
  const Tiles& tiles = tiles_.tiles();
  for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
    simd_.tile.read_scales(tiles.at[nth].scales, kLevelScale, value_scales_ + (tiles_.first() + nth) * kTileTokens);
  }
  const std::uint64_t tile_stride = std::uint64_t{work_.vectors} * kTileTokens;
  PrefetchAddresses prefetches = tiles.at[0].prefetches;
  for (std::uint32_t i = 0; i < work_.queries; ++i) {
    std::byte* const bytes = weight_bytes_ + std::size_t{i} * terms * kTileTokens;
    alignas(16) float weight_scales[kBlockTiles] = {};
    if (i < vectors.count() && vectors.sees_some(i)) {
      simd_.tile.weigh[terms - 1]({softmax.logits(i), softmax.max_logit(i), softmax.exp_sum(i), value_scales_, bytes,
                                   bytes + kTileTokens, tile_stride, prefetches},
                                  weight_scales);
      constexpr std::uint64_t kPrefetched = std::uint64_t{kWeighPrefetchLines} * kLineBytes;
      if ((i + 2) * kPrefetched <= memory_.tile_size()) {
        for (std::uintptr_t& address : prefetches) address += kPrefetched;
      }
    } else {
      for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) {
        std::memset(bytes + nth * tile_stride, 0, std::size_t{terms} * kTileTokens);
      }
    }
    for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) weight_scales_[nth * work_.queries + i] = weight_scales[nth];
  }
}

}  // namespace rota::ops
