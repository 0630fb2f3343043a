// Part of attend_simd.h, for CPUs that multiply matrices of bytes (core/isa/amx.h). Up to 16 vectors, a row of bytes
// each, are multiplied with a decoded tile: the lines of the page format are what the right tiles want.
//
//   keys, 16 tokens      | 64 dims  |  x  | 16 lines: 4 dims of 16 tokens each  |  =  | vectors x 16 tokens |
//   values, 16 dims      | 64 tokens|  x  | 16 lines: 4 tokens of 16 dims each  |  =  | vectors x 16 dims   |

#if !defined(ROTA_ISA)
#include "ops/attend/tile_simd.h"
#endif
#include "core/isa/amx.h"

namespace rota::ops::ROTA_ISA {

#define ROTA_SIMD_AMX_INLINE [[gnu::always_inline]] ROTA_SIMD_AMX inline

namespace amx = core::amx;

// Tile registers: kMatrixTiles of sums, then what is multiplied, in whole rows and in what dims leave behind them.
inline constexpr int kLeft = 4, kRight = 5, kLeftRest = 6, kRightRest = 7;

// Takes as long as 200 products of bytes: what is configured is not configured again.
ROTA_SIMD_AMX_INLINE void configure(MatrixScratch& scratch, std::uint32_t vectors, std::uint64_t dim) noexcept {
  const MatrixShape shape{static_cast<std::uint32_t>(least(vectors, kMatrixRows)),
                          static_cast<std::uint32_t>(dim % kLineBytes)};
  if (scratch.shape == shape) return;
  scratch.shape = shape;
  amx::TileShapes shapes;
  for (std::size_t i = 0; i < kMatrixTiles; ++i) shapes.set(i, shape.rows, kLineBytes);
  shapes.set(kLeft, shape.rows, kLineBytes);
  shapes.set(kRight, kMatrixRows, kLineBytes);
  if (shape.rest_bytes != 0) {
    shapes.set(kLeftRest, shape.rows, shape.rest_bytes);
    shapes.set(kRightRest, shape.rest_bytes / 4, kLineBytes);
  }
  amx::configure(shapes);
}

ROTA_SIMD_AMX void release_matrix() noexcept { amx::release(); }

// Some vectors and a tile whose sums are on their way.
struct MatrixStep {
  std::uint64_t tile, column;
  std::uint32_t first, last;  // vectors
  const std::int32_t (*sums)[kMatrixRows][kMatrixRows];
};

ROTA_SIMD_AMX_INLINE void store_sums(std::int32_t (*sums)[kMatrixRows][kMatrixRows]) noexcept {
  amx::store<0>(sums[0], kLineBytes);
  amx::store<1>(sums[1], kLineBytes);
  amx::store<2>(sums[2], kLineBytes);
  amx::store<3>(sums[3], kLineBytes);
}

template <int kSums, int kLeftTile, int kRightTile>
ROTA_SIMD_AMX_INLINE void multiply_tokens(const std::byte* lines) noexcept {
  amx::load<kRightTile>(lines, kLineBytes);
  amx::add_signed_by_unsigned<kSums, kLeftTile, kRightTile>();
}

// Some dims of all of a tile's tokens, of which 16 at a time have lines that follow each other.
template <int kLeftTile, int kRightTile>
ROTA_SIMD_AMX_INLINE void multiply_dims(const std::byte* rows, const std::byte* lines, std::uint64_t dim) noexcept {
  const std::uint64_t apart = dim / 4 * kLineBytes;
  amx::load<kLeftTile>(rows, dim);
  multiply_tokens<0, kLeftTile, kRightTile>(lines);
  multiply_tokens<1, kLeftTile, kRightTile>(lines + apart);
  multiply_tokens<2, kLeftTile, kRightTile>(lines + 2 * apart);
  multiply_tokens<3, kLeftTile, kRightTile>(lines + 3 * apart);
}

ROTA_SIMD_AMX_INLINE void multiply_tile(const std::byte* levels, const std::byte* rows, std::uint64_t dim,
                                        const std::int32_t* starts) noexcept {
  amx::load<0>(starts, kLineBytes);
  amx::load<1>(starts, kLineBytes);
  amx::load<2>(starts, kLineBytes);
  amx::load<3>(starts, kLineBytes);
  std::uint64_t d = 0;
  for (; d + kLineBytes <= dim; d += kLineBytes) {
    multiply_dims<kLeft, kRight>(rows + d, levels + d / 4 * kLineBytes, dim);
  }
  if (d < dim) multiply_dims<kLeftRest, kRightRest>(rows + d, levels + d / 4 * kLineBytes, dim);
}

// Of a vector, or of the two that a number with two bytes is.
template <std::uint32_t kTerms>
ROTA_SIMD_INLINE void load_sums(const MatrixStep& step, std::uint64_t part, std::uint32_t vector,
                                I32s (&sum)[kTerms]) noexcept {
#pragma GCC unroll 2
  for (std::uint32_t term = 0; term < kTerms; ++term) {
    sum[term] = simd::load_bits<I32s>(step.sums[part][vector - step.first + term]);
  }
}

template <std::uint32_t kTerms>
ROTA_SIMD void finish_keys(const Tiles& tiles, const KeyQueries& queries, const MatrixStep& step) noexcept {
  const std::byte* const at = tiles.at[step.tile].scales;
  const simd::TokenScales scales[kMatrixTiles]{simd::TokenScales(simd::load_bits<U16s>(at)),
                                               simd::TokenScales(simd::load_bits<U16s>(at + 2 * kLanes)),
                                               simd::TokenScales(simd::load_bits<U16s>(at + 4 * kLanes)),
                                               simd::TokenScales(simd::load_bits<U16s>(at + 6 * kLanes))};
  const float* const means = queries.means + step.tile * queries.queries;
  float* logits = queries.logits + step.first / kTerms * std::uint64_t{kKeyBlock} + step.tile * kTileTokens;
  for (std::uint32_t vector = step.first; vector < step.last; vector += kTerms, logits += kKeyBlock) {
    const std::uint32_t query = vector / kTerms;
    const LogitRows rows{queries.query_scales + query, means + query, logits};
#pragma GCC unroll 4
    for (std::uint64_t part = 0; part < kMatrixTiles; ++part) {
      I32s sum[kTerms];
      load_sums<kTerms>(step, part, vector, sum);
      write_logits<kTerms>(sum, scales[part], {rows.query_scales, rows.means, rows.logits + part * kLanes});
    }
  }
}

// Each tile is decoded a step before it is multiplied, and its sums become logits a step later: so none waits.
template <std::uint32_t kTerms>
ROTA_SIMD_AMX void dot_keys_in_matrix(const Tiles& tiles, const KeyQueries& queries, const MatrixWork& work) noexcept {
  MatrixScratch& scratch = work.scratch;
  configure(scratch, work.vectors, tiles.dim);
  for (std::uint32_t i = 0; i < work.vectors; ++i) {
    simd::store_bits(I32s{} + queries.starts[i], scratch.starts[i / kMatrixRows][i % kMatrixRows]);
  }
  work.decode(tiles, tiles.at[0], scratch.levels[0]);
  MatrixStep before{};
  for (std::uint64_t nth = 0, steps = 0; nth < tiles.count; ++nth) {
    for (std::uint32_t first = 0; first < work.vectors; first += kMatrixRows, ++steps) {
      const auto last = static_cast<std::uint32_t>(least(work.vectors, first + kMatrixRows));
      multiply_tile(scratch.levels[nth % 2], queries.bytes + first * tiles.dim, tiles.dim,
                    scratch.starts[first / kMatrixRows][0]);
      store_sums(scratch.sums[steps % 2]);
      if (first == 0 && nth + 1 < tiles.count) work.decode(tiles, tiles.at[nth + 1], scratch.levels[(nth + 1) % 2]);
      if (steps > 0) finish_keys<kTerms>(tiles, queries, before);
      before = {nth, 0, first, last, scratch.sums[steps % 2]};
    }
  }
  finish_keys<kTerms>(tiles, queries, before);
}

template <int kSums>
ROTA_SIMD_AMX_INLINE void multiply_column(const std::byte* lines, std::uint64_t columns,
                                          std::uint64_t column) noexcept {
  amx::zero<kSums>();
  if (column + kSums >= columns) return;
  amx::load<kRight>(lines + (column + kSums) * kLineBytes, columns * kLineBytes);
  amx::add_unsigned_by_signed<kSums, kLeft, kRight>();
}

template <std::uint32_t kTerms>
ROTA_SIMD_INLINE void finish_column(const MatrixStep& step, std::uint64_t part, std::uint32_t vector,
                                    F32s scale_of_bytes, float* output) noexcept {
  I32s sum[kTerms];
  load_sums<kTerms>(step, part, vector, sum);
  simd::store_bits(multiply_add(total_of<kTerms>(sum), scale_of_bytes, simd::load_bits<F32s>(output)), output);
}

template <std::uint32_t kTerms>
ROTA_SIMD void finish_values(const Tiles& tiles, const ValueWeights& weights, const MatrixStep& step) noexcept {
  const std::uint64_t count = least(kMatrixTiles, tiles.dim / 16 - step.column);
  const float* weight_scales = weights.weight_scales + (step.tile * weights.vectors + step.first) / kTerms;
  float* output = weights.outputs + step.first / kTerms * weights.stride + step.column * kLanes;
  for (std::uint32_t vector = step.first; vector < step.last; vector += kTerms, output += weights.stride) {
    const F32s scale_of_bytes = simd::all(*weight_scales++);
    if (count == kMatrixTiles) {
#pragma GCC unroll 4
      for (std::uint64_t part = 0; part < kMatrixTiles; ++part) {
        finish_column<kTerms>(step, part, vector, scale_of_bytes, output + part * kLanes);
      }
      continue;
    }
    for (std::uint64_t part = 0; part < count; ++part) {
      finish_column<kTerms>(step, part, vector, scale_of_bytes, output + part * kLanes);
    }
  }
}

template <std::uint32_t kTerms>
ROTA_SIMD_AMX void add_values_in_matrix(const Tiles& tiles, const ValueWeights& weights,
                                        const MatrixWork& work) noexcept {
  MatrixScratch& scratch = work.scratch;
  const std::uint64_t columns = tiles.dim / 16;
  configure(scratch, work.vectors, tiles.dim);
  work.decode(tiles, tiles.at[0], scratch.levels[0]);
  MatrixStep before{};
  for (std::uint64_t nth = 0, steps = 0; nth < tiles.count; ++nth) {
    const std::byte* const levels = scratch.levels[nth % 2];
    for (std::uint32_t first = 0; first < work.vectors; first += kMatrixRows) {
      const auto last = static_cast<std::uint32_t>(least(work.vectors, first + kMatrixRows));
      amx::load<kLeft>(weights.bytes + (nth * weights.vectors + first) * kTileTokens, kTileTokens);
      for (std::uint64_t column = 0; column < columns; column += kMatrixTiles, ++steps) {
        multiply_column<0>(levels, columns, column);
        multiply_column<1>(levels, columns, column);
        multiply_column<2>(levels, columns, column);
        multiply_column<3>(levels, columns, column);
        store_sums(scratch.sums[steps % 2]);
        if (first == 0 && column == 0 && nth + 1 < tiles.count) {
          work.decode(tiles, tiles.at[nth + 1], scratch.levels[(nth + 1) % 2]);
        }
        if (steps > 0) finish_values<kTerms>(tiles, weights, before);
        before = {nth, column, first, last, scratch.sums[steps % 2]};
      }
    }
  }
  finish_values<kTerms>(tiles, weights, before);
}

#undef ROTA_SIMD_AMX_INLINE

inline constexpr MatrixSimd kMatrixSimd{
    {dot_keys_in_matrix<1>, dot_keys_in_matrix<2>}, {add_values_in_matrix<1>, add_values_in_matrix<2>}, release_matrix};

}  // namespace rota::ops::ROTA_ISA
