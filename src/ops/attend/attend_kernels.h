#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "ops/attend/attend.params.h"
#include "rota/dtype.h"

// The inner loops of attention on a CPU: what one instruction set computes at a time. What for is
// said by who calls them: online_softmax.h, dense_side.h, sealed_side.h, plain_side.h.

namespace rota::ops {

// Keys or values of a key block are tiles.
inline constexpr std::uint32_t kBlockTiles = kKeyBlock / kTileTokens;

// Addresses, since what is prefetched need not be there.
using PrefetchAddresses = std::array<std::uintptr_t, kBlockTiles>;

// A tile's codes: planes of low and of high bits. Or, where it was decoded, its levels, in `low`. For each line that is
// read one is prefetched that the next key block needs: at four addresses by turns, from first to last at each, since a
// core that reads at one alone has too few requests to memory in flight.
struct Tile {
  const std::byte* low;
  const std::byte* high;
  const std::byte* scales;
  PrefetchAddresses prefetches;
};

struct Tiles {
  std::array<Tile, kBlockTiles> at;
  std::uint64_t count;
  std::uint64_t dim;
  const std::uint8_t* table;  // as the codec's decoder takes it
};

// Instead of bits, of tiles whose levels are bytes already: multiplied with one byte, or with two.
inline constexpr std::uint32_t kDecoded = 0, kDecodedTwice = 1;
inline constexpr std::uint32_t kWidths = 9;

// Codes of five bits and more deserve queries and weights of two bytes: one would err by more than a tenth of what the
// codec does. Each vector is two then, of high and of low bytes, one after the other.
constexpr std::uint32_t terms_of(std::uint32_t bits) noexcept { return bits >= 5 || bits == kDecodedTwice ? 2 : 1; }

// Vectors are multiplied in blocks of 8, then of 4, 2 and 1.
struct VectorBlock {
  std::uint32_t first, size;
};
constexpr VectorBlock block_of(std::uint32_t vector, std::uint32_t vectors) noexcept {
  std::uint32_t first = 0;
  std::uint32_t size = 8;
  for (; first + size <= vector || first + size > vectors;) {
    if (first + size > vectors) {
      size /= 2;
    } else {
      first += size;
    }
  }
  return {first, size};
}
inline constexpr std::uint32_t kBlockSizes = 4;

// How kernels take levels and vectors.
struct TileOrder {
  // What levels of keys and of values are larger by, so that instructions take them: by terms - 1, since those of one
  // term are at most 64 in magnitude, and the smaller they stay, the more instructions can multiply them.
  std::array<std::array<std::uint8_t, 2>, 2> more{{{64, 128}, {0, 0}}};
  // Quads of how many groups of cells lie side by side in a vector. If none, those of queries lie one by one, and
  // weights in rows.
  std::uint32_t quads_together = 0;
};

// Where a vector's quads are in its block, which has those of all vectors by turns, `stride` bytes apart.
struct QuadPlaces {
  std::uint32_t cells, together;  // of a group; groups
  std::uint64_t stride;

  constexpr std::uint64_t of(std::uint64_t quad) const noexcept {
    if (together <= 1) return quad * stride;
    const std::uint64_t within = quad % (2 * std::uint64_t{cells});  // of a pair of groups
    return ((quad - within) / 2 + (within & (cells - 1))) * stride + (within & cells) / cells * 4;
  }
};

// Queries as bytes: blocks of vectors, each [dim / 4][vector of the block][4], or as TileOrder has them; for AMX, rows
// of [dim].
struct KeyQueries {
  const std::byte* bytes;
  const std::int32_t* starts;  // of each vector's sum: levels are larger than they are
  const float* query_scales;   // sums times the query's and the tokens' scales are logits
  const float* means;          // [tile][query]: what is added where a token was sealed without the page's mean
  std::uint32_t queries;
  float* logits;  // [query][kKeyBlock], from the tiles' first token on
};

// Numbers become bytes by their largest one's inverse. Below this it might be infinite, and no result would notice
// them.
inline constexpr float kLeastInBytes = 0x1p-100F;

// A query and its bytes: numbers times byte_scale, four to a quad, quads `stride` bytes apart; and the low bytes, if
// there are two of each.
struct QuantizedQuery {
  const float* numbers;
  std::uint64_t dim;
  float byte_scale;
  std::byte* quads;
  std::byte* low_quads;
  std::uint64_t stride;
  std::uint32_t cells = 1;  // of a group, for QuadPlaces
};

// Of a query's bytes.
struct QuerySums {
  std::int32_t high, low;
};

// What values are weighed with, and added to.
struct ValueWeights {
  const std::byte* bytes;      // [tile][vector][token], or in each tile blocks as those of queries
  const float* weight_scales;  // [tile][query]: what a byte counts
  std::uint32_t vectors;
  float* outputs;
  std::uint64_t stride;                  // of outputs
  const std::int32_t* starts = nullptr;  // [tile][vector]: of sums, where levels are larger than they are
};

// A vector's logits in a key block, the values' scales, and bytes of weights times scales, [tile][...][token].
struct BlockWeights {
  const float* logits;
  float max_logit;
  float* exp_sum;  // kPadFloats numbers, to which weights are added
  const float* value_scales;
  std::byte* bytes;
  std::byte* low_bytes;
  std::uint64_t tile_stride;
  const std::uint32_t* quads;    // places of a tile's, if weights do not lie in rows; and then
  std::int32_t* starts;          // ValueWeights::starts, of this vector
  PrefetchAddresses prefetches;  // of which kWeighPrefetchLines lines each are prefetched meanwhile
};
inline constexpr std::uint32_t kWeighPrefetchLines = 4;

// A tile to lines of levels, one for each cell: as [cell] of keys, [quad of tokens][16 dims] of values.
using DecodeTile = void (*)(const Tiles&, const Tile&, std::byte* levels) noexcept;
// Of a block of vectors.
using DotKeys = void (*)(const Tiles&, const KeyQueries&, std::uint32_t first_vector) noexcept;
using AddValues = void (*)(const Tiles&, const ValueWeights&, std::uint32_t first_vector) noexcept;

struct TileSimd {
  std::array<DecodeTile, kWidths> decode_keys, decode_values;  // by bits
  // By bits and the block's size, 1 << i. Null where a tile is decoded first.
  std::array<std::array<DotKeys, kBlockSizes>, kWidths> dot_keys;
  std::array<std::array<AddValues, kBlockSizes>, kWidths> add_values;
  // Of four rows with a page's mean.
  void (*dot_mean)(const float* const (&rows)[4], const std::byte* mean, std::uint64_t dim, float* products) noexcept;
  void (*read_scales)(const std::byte* at, float level_scale, float* scales) noexcept;
  QuerySums (*quantize)(const QuantizedQuery&) noexcept;
  // By terms - 1: 2^(logit - max_logit) in bytes, and what a byte counts in each tile.
  std::array<void (*)(const BlockWeights&, float* weight_scales) noexcept, 2> weigh;
  TileOrder order = {};
};

// Where a CPU multiplies matrices of bytes: vectors are rows of them, as many at a time as a tile register has.
inline constexpr std::uint32_t kMatrixRows = 16;
inline constexpr std::uint32_t kMatrixBlocks = 2;  // of rows: kCpuVectors with two bytes each
inline constexpr std::uint32_t kMatrixTiles = 4;   // of sums: all tokens of a tile, or 64 dims

// What a thread's tile registers are configured for.
struct MatrixShape {
  std::uint32_t rows = 0, rest_bytes = 0;  // vectors; and what dims leave behind whole lines

  bool operator==(const MatrixShape&) const = default;
};

// Two of each: while one is multiplied, another is decoded, or becomes numbers.
struct alignas(kLineBytes) MatrixScratch {
  std::byte levels[2][kTileTokens * kMaxAttendDim];
  std::int32_t sums[2][kMatrixTiles][kMatrixRows][kMatrixRows];
  std::int32_t starts[kMatrixBlocks][kMatrixRows][kMatrixRows];
  MatrixShape shape;
};

// How tiles are decoded before, where, and how many vectors there are, two for each number that has two bytes.
struct MatrixWork {
  DecodeTile decode;
  MatrixScratch& scratch;
  std::uint32_t vectors;
};

// By terms - 1. A thread that has multiplied matrices releases them.
struct MatrixSimd {
  std::array<void (*)(const Tiles&, const KeyQueries&, const MatrixWork&) noexcept, 2> dot_keys;
  std::array<void (*)(const Tiles&, const ValueWeights&, const MatrixWork&) noexcept, 2> add_values;
  void (*release)() noexcept;
};

// Rows whose elements lie side by side, by their index in a key block, of which some are wanted. For each that is read
// one of the next key block is prefetched, in each quarter of it by turns: there is one for each index that is wanted.
struct DenseRows {
  const std::byte* const* at;
  const std::byte* const* prefetches;
  std::uint64_t first, last, dim;
};

// Numbers of vectors in a key block, [vector][index], are kKeyBlock apart.
struct DenseQueries {
  const float* packed;  // as pack() has them
  float* logits;
  const float* logit_scales;  // what products are multiplied with, for each vector
  std::uint32_t vectors;
};

struct DenseWeights {
  const float* weights;
  float* const* outputs;
  std::uint32_t vectors;
};

struct DenseSimd {
  // Queries of whole kPadFloats, in the order in which they are multiplied.
  void (*pack)(const float* const* queries, std::uint32_t vectors, std::uint64_t dim, float* packed) noexcept;
  // By type.
  std::array<void (*)(const DenseRows&, const DenseQueries&) noexcept, kDTypes.size()> dot;
  std::array<void (*)(const DenseRows&, const DenseWeights&) noexcept, kDTypes.size()> add;
};

// Rows of f32, a multiple of kPadFloats long.
struct AttendSimd {
  float (*dot)(const float*, const float*, std::uint64_t) noexcept;
  void (*add_scaled)(float*, const float*, float, std::uint64_t) noexcept;
  void (*scale)(float*, float, std::uint64_t) noexcept;
  float (*sum_of)(const float* row) noexcept;  // of kPadFloats numbers
  // Logits to 2^(logit - max_logit), in place, and added to kPadFloats sums. What pads them is kNoLogit.
  void (*exponentiate)(float* logits, std::uint64_t count, float max_logit, float* exp_sum) noexcept;
  // Maxima of four vectors' logits, raised to their largest. NaN is none.
  void (*max_of_four)(const float* const (&rows)[4], std::uint64_t count, float (&max_logits)[4]) noexcept;
  float (*largest_magnitude)(const float*, std::uint64_t) noexcept;  // NaN if there is one
  DenseSimd dense;
  TileSimd tile;
  const MatrixSimd* matrix = nullptr;  // if there is such a unit
};

const AttendSimd& attend_simd(core::Isa isa) noexcept;

}  // namespace rota::ops
