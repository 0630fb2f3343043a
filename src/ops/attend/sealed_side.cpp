#include "ops/attend/sealed_side.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace rota::ops {
namespace {

constexpr float kZeros[kMaxAttendDim] = {};

// The tiles of a block in which it has keys.
struct TileSpan {
  std::uint64_t first, count;
};
TileSpan tiles_of(const HeadBlock& block) noexcept {
  const std::uint64_t first = block.keys.begin % kKeyBlock / kTileTokens;
  return {first, (block.keys.end - 1) % kKeyBlock / kTileTokens + 1 - first};
}

}  // namespace

SealedTiles::SealedTiles(const SideMemory& memory, const TileOrder& order, MatrixScratch& scratch) noexcept
    : memory_(memory), scratch_(scratch) {
  if (!memory.sealed()) return;
  const int more = order.more[memory.layout().side][terms_of(memory.bits()) - 1];
  const std::size_t count = std::min(std::size_t{1} << memory.bits(), std::size(table_));
  for (std::uint32_t code = 0; code < count; ++code) {
    table_[code] = static_cast<std::uint8_t>(memory.level(code) + more);
  }
  for (std::size_t filled = count; filled < std::size(table_); filled *= 2) {
    std::memcpy(table_ + filled, table_, filled);
  }
  if (memory.bits() == 8) table_[0] = static_cast<std::uint8_t>(more ^ 128);  // codes are 128 more than their levels
}

void SealedTiles::prefetch(const HeadBlock& first) noexcept {
  const TileAddresses* const addresses = addresses_.begin(memory_, first);
  if (addresses == nullptr) return;
  const TileSpan span = tiles_of(first);
  for (std::uint64_t i = 0; i < span.count; ++i) {
    prefetch_bytes((*addresses)[span.first + i].low, memory_.tile_size());
  }
}

void SealedTiles::advance(const BlockPair& blocks) noexcept {
  addresses_.advance(memory_, blocks);
  const TileSpan next = tiles_of(blocks.next);
  const std::uint32_t halvings = next.count == 1 ? 2 : next.count == 2 ? 1 : 0;  // of each tile; divisions take long
  stream_bytes_ = memory_.tile_size() >> halvings;
  for (std::uint64_t i = 0; i < kBlockTiles; ++i) {
    const std::uint64_t nth = i >> halvings;
    const std::uint64_t tile = next.first + std::min(nth, next.count - 1);
    streams_[i] = addresses_.next()[tile].low + (i - (nth << halvings)) * stream_bytes_;
  }
  const TileSpan now = tiles_of(blocks.now);
  first_ = now.first;
  tiles_.count = 0;
  tiles_.dim = memory_.dim();
  tiles_.table = table_;
  for (std::uint64_t nth = first_; nth < first_ + now.count; ++nth) {
    const std::uint64_t quarter = tiles_.count * (memory_.tile_size() / kBlockTiles);
    const TileAddress& address = addresses_.now()[nth];
    Tile& tile = tiles_.at[tiles_.count++];
    tile.low = address.low;
    tile.high = address.low + memory_.high_plane();
    tile.scales = address.scales;
    for (std::uint64_t i = 0; i < kBlockTiles; ++i) {
      tile.prefetches[i] = reinterpret_cast<std::uintptr_t>(streams_[i]) + quarter;
    }
  }
}

void SealedTiles::prefetch_rest() const noexcept {
  const std::uint64_t done = tiles_.count * (memory_.tile_size() / kBlockTiles);
  for (std::uint64_t at = done; at < stream_bytes_; at += kLineBytes) {
    for (const std::byte* const stream : streams_) prefetch_bytes(stream + at, kLineBytes);
  }
}

// Rotated queries as bytes, or as two with a sign each. What vectors there are beyond them is nothing.
void SealedKeys::begin_tile(const QueryVectors& vectors) noexcept {
  work_ = tile_work(memory_, simd_.tile.dot_keys, simd_, vectors.count());
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
  const QuadPlaces places = work_.places(simd_.tile.order, block);
  const std::size_t apart = in_rows ? dim : places.stride / block.size;
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
                                              .stride = places.stride,
                                              .cells = places.cells});
  const std::int32_t more = simd_.tile.order.more[kKeys][terms - 1];
  starts_[std::size_t{i} * terms] = -more * sums.high;
  if (terms == 2) starts_[std::size_t{i} * terms + 1] = -more * sums.low;
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
  } else {
    tiles_.multiply(
        work_, simd_.tile.dot_keys, decode,
        [&](const Tiles& some, std::uint64_t nth, DotKeys dot, std::uint32_t first) {
          dot(some, {query_bytes_, starts_, query_scale_, means + nth * queries, queries, logits + nth * kTileTokens},
              first);
        });
  }
  tiles_.prefetch_rest();
}

void SealedValues::add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  tiles_.advance(blocks);
  weigh(vectors, softmax);
  const auto weights_from = [&](std::uint64_t tile) -> ValueWeights {
    return {weight_bytes_ + tile * work_.vectors * kTileTokens,
            weight_scales_ + tile * work_.queries,
            work_.vectors,
            softmax.output(),
            softmax.stride(),
            weight_starts_ + tile * work_.vectors};
  };
  const DecodeTile decode = simd_.tile.decode_values[memory_.bits()];
  if (work_.way == TileWay::matrix) {
    simd_.matrix->add_values[terms_of(memory_.bits()) - 1](tiles_.tiles(), weights_from(tiles_.first()),
                                                           tiles_.in_matrix(work_, decode));
  } else {
    tiles_.multiply(work_, simd_.tile.add_values, decode,
                    [&](const Tiles& some, std::uint64_t nth, AddValues add_some, std::uint32_t first) {
                      add_some(some, weights_from(tiles_.first() + nth), first);
                    });
  }
  tiles_.prefetch_rest();
}

SealedValues::VectorPlace SealedValues::place_of(std::uint32_t vector) noexcept {
  const std::uint32_t together = simd_.tile.order.quads_together;
  if (together == 0) return {vector, weight_bytes_ + std::size_t{vector} * kTileTokens, kTileTokens};
  const VectorBlock block = block_of(vector, work_.vectors);
  const std::uint64_t apart = std::uint64_t{4} * together;
  if (vector == block.first) {
    const QuadPlaces places = work_.places(simd_.tile.order, block);
    for (std::uint32_t i = 0; i < std::size(quads_); ++i) quads_[i] = static_cast<std::uint32_t>(places.of(i));
  }
  return {vector, weight_bytes_ + std::size_t{block.first} * kTileTokens + apart * (vector - block.first), apart};
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
    const VectorPlace place = place_of(i * terms);
    std::int32_t* const starts = weight_starts_ + std::size_t{i} * terms;
    alignas(16) float weight_scales[kBlockTiles] = {};
    if (i < vectors.count() && vectors.sees_some(i)) {
      simd_.tile.weigh[terms - 1]({softmax.logits(i), softmax.max_logit(i), softmax.exp_sum(i), value_scales_, place.at,
                                   place.at + place.to_next, tile_stride, quads_, starts, prefetches},
                                  weight_scales);
      constexpr std::uint64_t kPrefetched = std::uint64_t{kWeighPrefetchLines} * kLineBytes;
      if ((i + 2) * kPrefetched <= memory_.tile_size()) {
        for (std::uintptr_t& address : prefetches) address += kPrefetched;
      }
    } else {
      clear(place, terms);
    }
    for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) weight_scales_[nth * work_.queries + i] = weight_scales[nth];
  }
}

void SealedValues::clear(const VectorPlace& place, std::uint32_t terms) noexcept {
  const std::uint64_t tile_stride = std::uint64_t{work_.vectors} * kTileTokens;
  for (std::uint64_t nth = 0; nth < kBlockTiles; ++nth) {
    std::byte* const at = place.at + nth * tile_stride;
    if (simd_.tile.order.quads_together == 0) {
      std::memset(at, 0, std::size_t{terms} * kTileTokens);
      continue;
    }
    for (std::uint32_t term = 0; term < terms; ++term) {
      for (const std::uint32_t quad : quads_) std::memset(at + term * place.to_next + quad, 0, 4);
      weight_starts_[nth * work_.vectors + (place.vector + term)] = 0;
    }
  }
}

}  // namespace rota::ops
