// Part of attend_simd.h: sealed tiles are multiplied with four bytes in all lanes of a register.

#include <type_traits>

#if !defined(ROTA_ISA)
#include "ops/attend/tile_simd.h"
#endif

namespace rota::ops::ROTA_ISA {

// So many sums stay in registers.
inline constexpr std::uint32_t kSums = kLanes == 16 ? 16 : 8;

// Levels of one term are at most 64 in magnitude.
template <std::uint32_t kBits>
using Products = std::conditional_t<terms_of(kBits) == 1, simd::SmallProducts, simd::Products>;

// A group's cells of keys times the quads of queries that are theirs, added by turns to one chain of sums or two.
template <class P, class D, std::uint32_t kRegisters, std::uint32_t kVectors, std::uint32_t kChains>
ROTA_SIMD_INLINE void multiply_cells(const D& decoder, const CodeLines<D> (&group)[kRegisters], const std::byte* quads,
                                     I32s (&sum)[kChains][kRegisters][kVectors]) noexcept {
#pragma GCC unroll 8
  for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
    typename P::Unsigned left[kRegisters];
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      left[i] = P::as_unsigned(decoder.level(group[i], cell));
    }
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const auto right = P::as_signed(simd::four_bytes(quads + std::uint64_t{4} * (cell * kVectors + v)));
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) P::dot4(sum[cell % kChains][i][v], left[i], right);
    }
  }
}

// Registers hold 16 tokens of a tile each, or parts of them.
template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_SIMD void dot_keys(const Tiles& tiles, const KeyQueries& queries, std::uint32_t vector) noexcept {
  using D = Decoder<kBits>;
  constexpr std::uint32_t kTerms = terms_of(kBits);
  constexpr std::uint32_t kRegisters = least(4, kSums / kVectors);
  constexpr std::uint32_t kChains = kRegisters * kVectors >= 8 || D::kCells == 1 ? 1 : 2;  // to hide latency
  const D decoder(tiles.table);
  const std::uint64_t groups = tiles.dim / 4 / D::kCells;  // of 16 tokens
  const std::byte* const all_quads = queries.bytes + vector * tiles.dim;
  const float* const query_scales = queries.query_scales + vector / kTerms;
  for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
    const Tile tile = tiles.at[nth];
    const float* const means = queries.means + nth * queries.queries + vector / kTerms;
    float* const logits = queries.logits + std::uint64_t{vector / kTerms} * kKeyBlock + nth * kTileTokens;
    for (std::uint64_t first = 0; first < kTileTokens / 16 * kLineRegisters; first += kRegisters) {
      I32s sum[kChains][kRegisters][kVectors] = {};
#pragma GCC unroll 8
      for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (std::uint32_t i = 0; i < kRegisters; ++i) sum[0][i][v] = I32s{} + queries.starts[vector + v];
      }
      const std::byte* low[kRegisters];
      const std::byte* high[kRegisters];
      std::uintptr_t prefetches[kRegisters];
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) {
        prefetches[i] = tile.prefetches[(first + i) % 4];
        const std::uint64_t before = (first + i) / kLineRegisters * groups,
                            within = (first + i) % kLineRegisters * kRegisterBytes;
        low[i] = tile.low + before * D::kLowLines * kLineBytes + within;
        high[i] = tile.high + before * kLineBytes + within;
      }
      const std::byte* quads = all_quads;
      for (std::uint64_t at = 0; at < groups * kLineBytes; at += kLineBytes) {
        CodeLines<D> group[kRegisters];
#pragma GCC unroll 4
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
          group[i].read(low[i] + at * D::kLowLines, kLineBytes, high[i] + at);
          if constexpr (kBits > kDecodedTwice) prefetch_lines<D::kLines>(prefetches[i] + at * D::kLines);
        }
        multiply_cells<Products<kBits>>(decoder, group, quads, sum);
        quads += 4 * kVectors * D::kCells;
      }
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) {
        if constexpr (kChains == 2) {
          for (std::uint32_t v = 0; v < kVectors; ++v) sum[0][i][v] += sum[1][i][v];
        }
        const std::uint64_t token = (first + i) * kLanes;
        write_logits<kTerms>(sum[0][i], simd::TokenScales(simd::load_bits<U16s>(tile.scales + 2 * token)),
                             {query_scales, means, logits + token});
      }
    }
  }
}

// A group's cells of values times the bytes of their tokens' weights.
template <class P, class D, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void weigh_cells(const D& decoder, const CodeLines<D> (&group)[kRegisters], const std::byte* bytes,
                                  I32s (&sum)[kRegisters][kVectors]) noexcept {
#pragma GCC unroll 8
  for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
    typename P::Signed right[kRegisters];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      right[i] = P::as_signed(decoder.level(group[i], cell));
    }
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const auto left =
          P::as_unsigned(simd::four_bytes(bytes + std::uint64_t{v} * kTileTokens + std::uint64_t{4} * cell));
#pragma GCC unroll 8
      for (std::uint32_t i = 0; i < kRegisters; ++i) P::dot4(sum[i][v], left, right[i]);
    }
  }
}

// outputs[vector][dim] += weight_scale * sums over a tile's 64 tokens.
template <std::uint32_t kBits, std::uint32_t kVectors, std::uint32_t kRegisters>
ROTA_SIMD_INLINE void add_columns(const Tiles& tiles, const Decoder<kBits>& decoder, const ValueWeights& weights,
                                  const TileColumns& columns) noexcept {
  using D = Decoder<kBits>;
  const auto [nth, vector, first] = columns;
  const Tile tile = tiles.at[nth];
  const std::uint64_t row_bytes = tiles.dim / 16 * kLineBytes;
  I32s sum[kRegisters][kVectors] = {};
  const std::byte* low = tile.low + first * kRegisterBytes;
  const std::byte* high = tile.high + first * kRegisterBytes;
  constexpr std::uint64_t kRows = kTileTokens / 4 / D::kCells;
  constexpr std::uint64_t kGroupBytes = std::uint64_t{D::kLines} * kLineBytes;
  constexpr std::uint64_t kPerAddress = (kRegisters + 3) / 4;
  constexpr bool kTurns = kRegisters == 3 || kRegisters == 5;  // which address is prefetched changes from row to row
  std::uintptr_t prefetches[kRegisters];
#pragma GCC unroll 8
  for (std::uint32_t i = 0; i < kRegisters; ++i) {
    prefetches[i] = tile.prefetches[(first + i) % 4] + (first / 4 * kRows + i / 4) * kGroupBytes;
  }
  const std::byte* bytes = weights.bytes + (nth * weights.vectors + vector) * kTileTokens;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    CodeLines<D> group[kRegisters];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      group[i].read(low + i * kRegisterBytes, row_bytes, high + i * kRegisterBytes);
      if constexpr (kBits > kDecodedTwice && kTurns) {
        const std::uint64_t turn = first * kRows + row * kRegisters + i;
        prefetch_lines<D::kLines>(tile.prefetches[turn % 4] + turn / 4 * kGroupBytes);
      } else if constexpr (kBits > kDecodedTwice) {
        prefetch_lines<D::kLines>(prefetches[i] + row * kPerAddress * kGroupBytes);
      }
    }
    weigh_cells<Products<kBits>>(decoder, group, bytes, sum);
    bytes += 4 * D::kCells;
    low += D::kLowLines * row_bytes;
    high += row_bytes;
  }
  add_to_outputs<terms_of(kBits)>(sum, weights, columns);
}

// Registers of columns that are added at once, of those that are left. Alone, a register's sums would wait for each
// other: with one more, or three twice, none is alone.
template <std::uint32_t kVectors>
struct ColumnCounts {
  static constexpr std::uint32_t kMost = least(8, kSums / kVectors);
  static constexpr std::uint32_t kFewer = kMost < 4 ? 1 : kMost / 2;
  static constexpr bool kOneMore = kLanes == 16 && (kMost == 2 || kMost == 4);

  static constexpr std::uint64_t of(std::uint64_t left) {
    if (kOneMore && left == kMost + 1) return left;
    if (kOneMore && kMost == 4 && (left == 6 || left == 3)) return 3;
    return left >= kMost ? kMost : left >= kFewer ? kFewer : 1;
  }
};

template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_SIMD void add_values(const Tiles& tiles, const ValueWeights& weights, std::uint32_t vector) noexcept {
  using Counts = ColumnCounts<kVectors>;
  const Decoder<kBits> decoder(tiles.table);
  const std::uint64_t registers = tiles.dim / 16 * kLineRegisters;
  for (std::uint64_t nth = 0; nth < tiles.count; ++nth) {
    for (std::uint64_t first = 0, count = 0; first < registers; first += count) {
      count = Counts::of(registers - first);
      if (count == Counts::kMost) {
        add_columns<kBits, kVectors, Counts::kMost>(tiles, decoder, weights, {nth, vector, first});
      } else if (count == Counts::kFewer) {
        add_columns<kBits, kVectors, Counts::kFewer>(tiles, decoder, weights, {nth, vector, first});
      } else if (count == 1) {
        add_columns<kBits, kVectors, 1>(tiles, decoder, weights, {nth, vector, first});
      } else if constexpr (Counts::kOneMore) {
        if (count == 3) {
          add_columns<kBits, kVectors, 3>(tiles, decoder, weights, {nth, vector, first});
        } else {
          add_columns<kBits, kVectors, Counts::kMost + 1>(tiles, decoder, weights, {nth, vector, first});
        }
      }
    }
  }
}

}  // namespace rota::ops::ROTA_ISA
