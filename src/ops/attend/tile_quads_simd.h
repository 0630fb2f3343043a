// Part of attend_simd.h, for sets whose instructions take one quad of bytes of four in a register, or two rows of two
// quads: nothing is put into all lanes, and 16 bytes of levels are multiplied with a vector by one instruction, or with
// two. Matrices want two quads of a token's dims side by side, or of a dim's tokens: lines of two groups are
// interleaved as codes, so that each instruction serves all cells.
//
//   group      | t0 | t1 | t2 | t3 |         | t0 t0 | t1 t1 |        | v0 v0 |        | t0 v0, t0 v1 |
//   next group | t0 | t1 | t2 | t3 |   ->    | t2 t2 | t3 t3 |    x   | v1 v1 |   =    | t1 v0, t1 v1 |  ...

#include <type_traits>

#if !defined(ROTA_ISA)
#include "ops/attend/tile_simd.h"
#endif

#if defined(ROTA_ISA_DOTPROD)

namespace rota::ops::ROTA_ISA {

using simd::kQuadsTogether;

// Codes of eight bits are levels that are 128 larger.
template <std::uint32_t kBits, class Products>
using QuadDecoder = std::conditional_t<kBits == 8 && Products::kMore == 128, DecodedLines, Decoder<kBits>>;

template <std::uint32_t kVectors>
inline constexpr bool kInMatrices = kQuadsTogether == 2 && kVectors >= 2;

// Registers of levels that are multiplied at once: so many that sums, lines, tables and vectors fit into 32.
template <std::uint32_t kBits, std::uint32_t kVectors>
constexpr std::uint32_t at_once() {
  const bool in_planes = kBits > kDecodedTwice && group_cells(kBits) != 8 / kBits;
  const bool crowded = kInMatrices<kVectors> && in_planes;
  return kVectors == 8 ? (crowded && kBits == 6 ? 1 : 2) : kVectors == 4 && crowded ? 2 : 4;
}

// Lines of codes, and what they are multiplied with: groups that follow each other.
struct QuadLines {
  const std::byte* low;
  const std::byte* high;
  std::uint64_t apart, low_step, high_step;  // lines of a group; groups
  const std::byte* bytes;
  std::uintptr_t prefetches;
};

template <class Products, class D, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void multiply_cell(const D& decoder, const CodeLines<D> (&group)[kQuadsTogether][kRegisters],
                                    std::uint32_t cell, const std::byte* bytes,
                                    I32s (&sum)[kRegisters][kVectors]) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < kRegisters; ++i) {
#pragma GCC unroll 2
    for (std::uint32_t part = 0; part < kQuadsTogether; ++part) {
      const U8s levels = decoder.level(group[part][i], cell);
      if constexpr (kInMatrices<kVectors>) {
#pragma GCC unroll 4
        for (std::uint32_t v = 0; v < kVectors; v += 2) {
          const U8s rows = simd::load_bits<U8s>(bytes + std::uint64_t{8} * (cell * kVectors + v));
          Products::multiply_rows(sum[i][v + part], levels, rows);
        }
      } else {
#pragma GCC unroll 8
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          const std::uint32_t quad = (cell * kVectors + v) * kQuadsTogether + part;
          simd::dot_quad<Products>(sum[i][v], levels, simd::load_bits<U8s>(bytes + quad / 4 * kRegisterBytes),
                                   quad % 4);
        }
      }
    }
  }
}

// Adds the products of as many groups as are put together.
template <class Products, class D, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void multiply_groups(const D& decoder, const QuadLines& lines,
                                      I32s (&sum)[kRegisters][kVectors]) noexcept {
  constexpr std::uint32_t kLineCells = D::kCells / D::kLowLines;
  CodeLines<D> group[kQuadsTogether][kRegisters];
  if constexpr (D::kHigh != 0) {
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
#pragma GCC unroll 2
      for (std::uint32_t part = 0; part < kQuadsTogether; ++part) {
        group[part][i].high = simd::load_bits<U8s>(lines.high + part * lines.high_step + i * kRegisterBytes);
      }
      if constexpr (kInMatrices<kVectors>) simd::interleave_quads(group[0][i].high, group[1][i].high);
    }
  }
#pragma GCC unroll 4
  for (std::uint32_t line = 0; line < D::kLowLines; ++line) {
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
#pragma GCC unroll 2
      for (std::uint32_t part = 0; part < kQuadsTogether; ++part) {
        group[part][i].low[line] =
            simd::load_bits<U8s>(lines.low + part * lines.low_step + line * lines.apart + i * kRegisterBytes);
      }
      if constexpr (kInMatrices<kVectors>) simd::interleave_quads(group[0][i].low[line], group[1][i].low[line]);
    }
#pragma GCC unroll 8
    for (std::uint32_t cell = 0; cell < kLineCells; ++cell) {
      multiply_cell<Products>(decoder, group, line * kLineCells + cell, lines.bytes, sum);
    }
  }
}

// Sums of each register's products with each vector. Of groups of one cell there is an even number.
template <class Products, std::uint32_t kBits, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void add_products(const QuadDecoder<kBits, Products>& decoder, QuadLines lines, std::uint64_t groups,
                                   I32s (&sum)[kRegisters][kVectors]) noexcept {
  using D = QuadDecoder<kBits, Products>;
  constexpr std::uint32_t kTurns = D::kCells == 1 ? 2 : 1;
  constexpr std::uint64_t kPrefetched =
      std::uint64_t{D::kLines} * kTurns * kQuadsTogether * kRegisters * kRegisterBytes;
  for (; groups != 0; groups -= kTurns * kQuadsTogether) {
    if constexpr (kBits > kDecodedTwice) prefetch_lines<(kPrefetched + kLineBytes - 1) / kLineBytes>(lines.prefetches);
    lines.prefetches += kPrefetched;
#pragma GCC unroll 2
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      multiply_groups<Products>(decoder, lines, sum);
      lines.low += kQuadsTogether * lines.low_step;
      lines.high += kQuadsTogether * lines.high_step;
      lines.bytes += std::uint64_t{4} * D::kCells * kVectors * kQuadsTogether;
    }
  }
  if constexpr (kInMatrices<kVectors>) {
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
#pragma GCC unroll 4
      for (std::uint32_t v = 0; v < kVectors; v += 2) simd::part_rows(sum[i][v], sum[i][v + 1]);
    }
  }
}

// Sums begin with what levels that are too large will have added; of rows, two vectors' by turns.
template <std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void begin_sums(const std::int32_t* starts, I32s (&sum)[kRegisters][kVectors]) noexcept {
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
    const I32s start = kInMatrices<kVectors> ? simd::two_numbers(starts + v / 2 * 2) : I32s{} + starts[v];
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) sum[i][v] = start;
  }
}

template <std::uint32_t kTerms, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void write_all_logits(const I32s (&sum)[kRegisters][kVectors], const std::byte* scales,
                                       const LogitRows& rows) noexcept {
  simd::TokenScales tokens[kRegisters];
#pragma GCC unroll 4
  for (std::uint64_t i = 0; i < kRegisters; ++i) {
    tokens[i] = simd::TokenScales(simd::load_bits<U16s>(scales + 2 * kLanes * i));
  }
  float* logits = rows.logits;
#pragma GCC unroll 8
  for (std::uint64_t q = 0; q < kVectors / kTerms; ++q, logits += kKeyBlock) {
    const float query_scale = rows.query_scales[q], mean = rows.means[q];
#pragma GCC unroll 4
    for (std::uint64_t i = 0; i < kRegisters; ++i) {
      simd::store_bits(logits_of<kTerms>(&sum[i][q * kTerms], tokens[i], query_scale, mean), logits + i * kLanes);
    }
  }
}

// Registers hold four tokens of a tile each.
template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_SIMD void dot_keys(const Tiles& tiles, const KeyQueries& queries, std::uint32_t vector) noexcept {
  using Products = simd::KeyProducts;
  using D = QuadDecoder<kBits, Products>;
  constexpr std::uint32_t kTerms = terms_of(kBits), kRegisters = at_once<kBits, kVectors>();
  constexpr std::uint64_t kLowStep = std::uint64_t{D::kLowLines} * kLineBytes;
  const D decoder(tiles.table);
  const std::uint64_t groups = tiles.dim / 4 / D::kCells;  // of 16 tokens
  const float* const query_scales = queries.query_scales + vector / kTerms;
  for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
    const Tile tile = tiles.at[nth];
    const float* const means = queries.means + nth * queries.queries + vector / kTerms;
    float* const logits = queries.logits + std::uint64_t{vector / kTerms} * kKeyBlock + nth * kTileTokens;
    for (std::uint64_t first = 0; first < kTileTokens / kLanes; first += kRegisters) {
      const std::uint64_t before = first / kLineRegisters * groups;
      const std::uint64_t within = first % kLineRegisters * kRegisterBytes;
      I32s sum[kRegisters][kVectors];
      begin_sums(queries.starts + vector, sum);
      add_products<Products, kBits>(
          decoder,
          {.low = tile.low + before * kLowStep + within,
           .high = tile.high + before * kLineBytes + within,
           .apart = kLineBytes,
           .low_step = kLowStep,
           .high_step = kLineBytes,
           .bytes = queries.bytes + vector * tiles.dim,
           .prefetches = tile.prefetches[first / kLineRegisters] + within * groups * D::kLines},
          groups, sum);
      write_all_logits<kTerms>(sum, tile.scales + 2 * kLanes * first, {query_scales, means, logits + kLanes * first});
    }
  }
}

// Registers hold four dims of a line each, of which there are whole ones: outputs += weight_scale * sums over a tile's
// tokens.
template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_SIMD void add_values(const Tiles& tiles, const ValueWeights& weights, std::uint32_t vector) noexcept {
  using Products = simd::ValueProducts;
  using D = QuadDecoder<kBits, Products>;
  constexpr std::uint32_t kTerms = terms_of(kBits), kRegisters = at_once<kBits, kVectors>();
  constexpr std::uint64_t kGroups = kTileTokens / 4 / D::kCells;
  const D decoder(tiles.table);
  const std::uint64_t row_bytes = tiles.dim / 16 * kLineBytes;
  for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
    const Tile tile = tiles.at[nth];
    const std::uint64_t first_vector = nth * weights.vectors + vector;
    for (std::uint64_t at = 0; at < row_bytes; at += kRegisters * kRegisterBytes) {
      const std::uint64_t column = at / kLineBytes;
      I32s sum[kRegisters][kVectors];
      begin_sums(weights.starts + first_vector, sum);
      add_products<Products, kBits>(decoder,
                                    {.low = tile.low + at,
                                     .high = tile.high + at,
                                     .apart = row_bytes,
                                     .low_step = D::kLowLines * row_bytes,
                                     .high_step = row_bytes,
                                     .bytes = weights.bytes + first_vector * kTileTokens,
                                     .prefetches = tile.prefetches[column % 4] +
                                                   (column / 4 * kLineBytes + at % kLineBytes) * kGroups * D::kLines},
                                    kGroups, sum);
      add_to_outputs<kTerms>(sum, weights, {nth, vector, at / kRegisterBytes});
    }
  }
}

}  // namespace rota::ops::ROTA_ISA

#endif
