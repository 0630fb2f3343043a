// Part of attend_simd.h. The codec decodes a sealed tile to lines of int8 levels, one for each cell of the page format,
// and lines are multiplied by bytes: four products to a 32-bit sum, so there are no sums across a register.

#if !defined(ROTA_ISA)
#include "ops/attend/rows_simd.h"
#endif
#include "codec/turbo/decode_simd.h"

namespace rota::ops::ROTA_ISA {

using simd::Bytes;
using simd::CodeLines;
using simd::finite_halves;
using simd::kLineRegisters;
using simd::kRegisterBytes;
using simd::U16s;
using simd::U8s;

ROTA_SIMD void dot_mean(const float* const (&rows)[4], const std::byte* mean, std::uint64_t dim,
                        float* products) noexcept {
  F32s sum[4] = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const F32s numbers = finite_halves(simd::load_bits<U16s>(mean + 2 * i));
#pragma GCC unroll 4
    for (std::uint64_t j = 0; j < 4; ++j) sum[j] = multiply_add(simd::load_bits<F32s>(rows[j] + i), numbers, sum[j]);
  }
  simd::store_bits(simd::fold_four<simd::Sum>(sum[0], sum[1], sum[2], sum[3]), products);
}

// Of a tile's tokens, times `level_scale`.
ROTA_SIMD void read_scales(const std::byte* at, float level_scale, float* scales) noexcept {
  for (std::uint64_t i = 0; i < kTileTokens; i += kLanes) {
    simd::store_bits(finite_halves(simd::load_bits<U16s>(at + 2 * i) & 0x7fff) * level_scale, scales + i);
  }
}

// Returns the sums of the bytes.
ROTA_SIMD QuerySums quantize(const QuantizedQuery& what) noexcept {
  const QuantizedQuery query = what;  // which no store changes
  I32s sums = {}, low_sums = {};
  for (std::uint64_t d = 0; d < query.dim; d += kLanes) {
    const I32s whole = simd::nearest_product(simd::load_bits<F32s>(query.numbers + d), simd::all(query.byte_scale));
    const I32s high = query.low_quads == nullptr ? whole : (whole + 128) >> 8;
    const I32s rest = whole - (high << 8);
    const Bytes bytes = simd::low_bytes(simd::same_bits<U32s>(high));
    const Bytes rest_bytes = simd::low_bytes(simd::same_bits<U32s>(rest));
    sums += high;
    low_sums += rest;
    for (std::uint64_t quad = 0; quad < kLanes / 4; ++quad) {
      const std::uint64_t to = (d / 4 + quad) * query.stride;
      std::memcpy(query.quads + to, reinterpret_cast<const std::byte*>(&bytes) + 4 * quad, 4);
      if (query.low_quads == nullptr) continue;
      std::memcpy(query.low_quads + to, reinterpret_cast<const std::byte*>(&rest_bytes) + 4 * quad, 4);
    }
  }
  QuerySums total{};
  for (std::uint64_t i = 0; i < kLanes; ++i) {
    total.high += sums[i];
    total.low += low_sums[i];
  }
  return total;
}

// Of a tile that was decoded: a group is one line of levels.
struct DecodedLines {
  static constexpr std::uint32_t kHigh = 0, kCells = 1, kLowLines = 1, kLines = 1;

  ROTA_SIMD_INLINE explicit DecodedLines(const std::uint8_t*) noexcept {}
  ROTA_SIMD_INLINE U8s level(const CodeLines<DecodedLines>& lines, std::uint32_t) const noexcept {
    return lines.low[0];
  }
};

template <std::uint32_t kBits>
struct DecoderOf {
  using Type = simd::Decoder<kBits>;
};
template <>
struct DecoderOf<kDecoded> {
  using Type = DecodedLines;
};
template <>
struct DecoderOf<kDecodedTwice> {
  using Type = DecodedLines;
};
template <std::uint32_t kBits>
using Decoder = typename DecoderOf<kBits>::Type;

// Levels of one term are at most 64 in magnitude.
template <std::uint32_t kBits>
struct ProductsOf {
  using Type = simd::SmallProducts;
};
template <std::uint32_t kBits>
  requires(terms_of(kBits) == 2)
struct ProductsOf<kBits> {
  using Type = simd::Products;
};
template <std::uint32_t kBits>
using Products = typename ProductsOf<kBits>::Type;

template <std::uint32_t kLines>
ROTA_SIMD_INLINE void prefetch_lines(std::uintptr_t at) noexcept {
#pragma GCC unroll 8
  for (std::uint64_t i = 0; i < kLines; ++i) prefetch(at + i * kLineBytes);
}

// How a group's lines follow each other: those of keys at once, those of values a row of the tile's dims apart.
struct GroupSteps {
  std::uint64_t low, levels;            // from a group to the next
  std::uint64_t apart, prefetch_bytes;  // between a group's own lines; from a prefetched group to the next
};

template <class D>
ROTA_SIMD_INLINE void decode_group(const D& decoder, const std::byte* low, const std::byte* high,
                                   const GroupSteps& steps, std::byte* levels) noexcept {
#pragma GCC unroll 4
  for (std::uint64_t part = 0; part < kLineBytes; part += kRegisterBytes) {
    CodeLines<D> group;
    group.read(low + part, steps.apart, high + part);
#pragma GCC unroll 8
    for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
      simd::store_bits(decoder.level(group, cell), levels + cell * steps.apart + part);
    }
  }
}

template <std::uint32_t kBits, bool kKeySide>
ROTA_SIMD void decode(const Tiles& tiles, const Tile& tile, std::byte* levels) noexcept {
  using D = Decoder<kBits>;
  const D decoder(tiles.table);
  const std::uint64_t columns = tiles.dim / 16;
  const std::uint64_t rows = kKeySide ? 1 : kTileTokens / 4 / D::kCells;
  const std::uint64_t row_groups = kKeySide ? tiles.dim / D::kCells : columns;
  const GroupSteps steps =
      kKeySide ? GroupSteps{D::kLowLines * kLineBytes, D::kCells * kLineBytes, kLineBytes, D::kLines * kLineBytes}
               : GroupSteps{kLineBytes, kLineBytes, columns * kLineBytes, rows * D::kLines * kLineBytes};
  const std::byte* high = tile.high;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::byte* low = tile.low + row * D::kLowLines * columns * kLineBytes;
    std::byte* to = levels + row * D::kCells * columns * kLineBytes;
    std::uint64_t prefetched = row * D::kLines * kLineBytes;
    std::uint64_t nth = 0;
    for (; nth + 4 <= row_groups; nth += 4, prefetched += steps.prefetch_bytes) {
#pragma GCC unroll 4
      for (std::uint64_t i = 0; i < 4; ++i, low += steps.low, high += kLineBytes, to += steps.levels) {
        prefetch_lines<D::kLines>(tile.prefetches[i] + prefetched);
        decode_group(decoder, low, high, steps, to);
      }
    }
    for (; nth < row_groups; ++nth, low += steps.low, high += kLineBytes, to += steps.levels) {
      prefetch_lines<D::kLines>(tile.prefetches[nth % 4] + prefetched);
      decode_group(decoder, low, high, steps, to);
    }
  }
}

// So many sums stay in registers.
inline constexpr std::uint32_t kSums = kLanes == 16 ? 16 : 8;

// What one number is that has one byte, or two, as sums of products with them.
template <std::uint32_t kTerms>
ROTA_SIMD_INLINE F32s total_of(const I32s* terms) noexcept {
  const F32s first = __builtin_convertvector(terms[0], F32s);
  if constexpr (kTerms == 1) return first;
  return multiply_add(first, simd::all(256.0F), __builtin_convertvector(terms[1], F32s));
}

// Where some of a tile's tokens have their logits, [query][kKeyBlock], and by what sums become logits.
struct LogitRows {
  const float* query_scales;
  const float* means;  // what the page's mean gives, where a token was sealed without it
  float* logits;
};

template <std::uint32_t kTerms, std::uint32_t kVectors>
ROTA_SIMD_INLINE void write_logits(const I32s (&sum)[kVectors], const simd::TokenScales& tokens,
                                   const LogitRows& rows) noexcept {
#pragma GCC unroll 8
  for (std::uint64_t q = 0; q < kVectors / kTerms; ++q) {
    const F32s product = total_of<kTerms>(&sum[q * kTerms]) * rows.query_scales[q] * tokens.scales;
    simd::store_bits(multiply_add(tokens.with_mean, simd::all(rows.means[q]), product), rows.logits + q * kKeyBlock);
  }
}

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

// Which columns are added: of a tile, for vectors from `vector` on, in registers from `first` on.
struct TileColumns {
  std::uint64_t nth;
  std::uint32_t vector;
  std::uint64_t first;
};

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
  constexpr std::uint32_t kTerms = terms_of(kBits);
  const float* const weight_scales = weights.weight_scales + (nth * weights.vectors + vector) / kTerms;
  float* const outputs = weights.outputs + vector / kTerms * weights.stride + first * kLanes;
  const std::uint64_t stride = weights.stride;
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < kVectors / kTerms; ++q) {
    const F32s scale_of_bytes = simd::all(weight_scales[q]);
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      float* const output = outputs + q * stride + i * kLanes;
      const F32s total = total_of<kTerms>(&sum[i][q * kTerms]);
      simd::store_bits(multiply_add(total, scale_of_bytes, simd::load_bits<F32s>(output)), output);
    }
  }
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

template <std::uint32_t kTerms>
ROTA_SIMD void weigh(const BlockWeights& block, float* weight_scales) noexcept {
  constexpr float kMost = kTerms == 2 ? 65535.0F : 255.0F;
  constexpr std::uint64_t kRegisters = kTileTokens / kLanes;  // of a tile
  F32s products[kBlockTiles][kRegisters];
  F32s largest[kBlockTiles] = {};
  F32s exp_sums[4] = {simd::load_bits<F32s>(block.exp_sum)};  // so that none waits for another
  const F32s max_logit = simd::all(block.max_logit);
#pragma GCC unroll 4
  for (std::uint64_t tile = 0; tile < kBlockTiles; ++tile) {
    prefetch_lines<kWeighPrefetchLines>(block.prefetches[tile]);
#pragma GCC unroll 4
    for (std::uint64_t i = 0; i < kRegisters; ++i) {
      const std::uint64_t at = tile * kTileTokens + i * kLanes;
      const F32s weight = exp2_of(simd::load_bits<F32s>(block.logits + at) - max_logit);
      exp_sums[i % 4] += weight;
      products[tile][i] = weight * simd::load_bits<F32s>(block.value_scales + at);
      largest[tile] = simd::Largest::of(products[tile][i], largest[tile]);
    }
  }
  const simd::F32Quad most = simd::fold_four<simd::Largest>(largest[0], largest[1], largest[2], largest[3]);
  const simd::F32Quad inverse = most > kLeastInBytes ? kMost / most : simd::F32Quad{};
  simd::store_bits(most * (1 / kMost), weight_scales);
#pragma GCC unroll 4
  for (std::uint64_t tile = 0; tile < kBlockTiles; ++tile) {
    const F32s byte_scale = simd::all(inverse[tile]);
    for (std::uint64_t first = 0; first < kRegisters; first += 4) {
      U32s high[4], low[4];
#pragma GCC unroll 4
      for (std::uint64_t i = 0; i < 4; ++i) {
        const U32s whole = simd::same_bits<U32s>(simd::nearest_product(products[tile][first + i], byte_scale));
        low[i] = kTerms == 2 ? whole & 255U : whole;
        high[i] = whole >> 8;
      }
      const std::uint64_t to = tile * block.tile_stride + first * kLanes;
      simd::store_as_bytes(kTerms == 2 ? high : low, block.bytes + to);
      if constexpr (kTerms == 2) simd::store_as_bytes(low, block.low_bytes + to);
    }
  }
  simd::store_bits((exp_sums[0] + exp_sums[1]) + (exp_sums[2] + exp_sums[3]), block.exp_sum);
}

template <std::uint32_t kBits, std::uint32_t kVectors>
constexpr DotKeys dot_of() {
  if constexpr (kVectors >= terms_of(kBits)) return dot_keys<kBits, kVectors>;
  return nullptr;
}
template <std::uint32_t kBits, std::uint32_t kVectors>
constexpr AddValues add_of() {
  if constexpr (kVectors >= terms_of(kBits)) return add_values<kBits, kVectors>;
  return nullptr;
}
template <std::uint32_t kBits>
inline constexpr std::array<DotKeys, kBlockSizes> kDotKeys{dot_of<kBits, 1>(), dot_of<kBits, 2>(), dot_of<kBits, 4>(),
                                                           dot_of<kBits, 8>()};
template <std::uint32_t kBits>
inline constexpr std::array<AddValues, kBlockSizes> kAddValues{add_of<kBits, 1>(), add_of<kBits, 2>(),
                                                               add_of<kBits, 4>(), add_of<kBits, 8>()};

inline constexpr TileSimd kTileSimd{
    {nullptr, nullptr, decode<2, true>, decode<3, true>, decode<4, true>, decode<5, true>, decode<6, true>, nullptr,
     decode<8, true>},
    {nullptr, nullptr, decode<2, false>, decode<3, false>, decode<4, false>, decode<5, false>, decode<6, false>,
     nullptr, decode<8, false>},
#if defined(ROTA_ISA_VNNI)  // where there are registers enough to decode while multiplying
    {kDotKeys<0>, kDotKeys<1>, kDotKeys<2>, kDotKeys<3>, kDotKeys<4>, kDotKeys<5>, kDotKeys<6>, {}, kDotKeys<8>},
    {kAddValues<0>,
     kAddValues<1>,
     kAddValues<2>,
     kAddValues<3>,
     kAddValues<4>,
     kAddValues<5>,
     kAddValues<6>,
     {},
     kAddValues<8>},
#elif ROTA_ISA_WIDTH >= 8  // for small products, of codes that are quickly levels
    {kDotKeys<kDecoded>, kDotKeys<kDecodedTwice>, {}, {}, kDotKeys<4>},
    {kAddValues<kDecoded>, kAddValues<kDecodedTwice>, {}, {}, kAddValues<4>},
#else
    {kDotKeys<kDecoded>, kDotKeys<kDecodedTwice>},
    {kAddValues<kDecoded>, kAddValues<kDecodedTwice>},
#endif
    dot_mean,
    read_scales,
    quantize,
    {weigh<1>, weigh<2>},
};

}  // namespace rota::ops::ROTA_ISA
