// Part of attend_simd.h. The codec decodes a sealed tile to lines of int8 levels, one for each cell of the page format,
// and lines are multiplied by bytes: four products to a 32-bit sum, so there are no sums across a register. Here is
// what all sets have in common; they multiply as tile_broadcasts_simd.h and tile_quads_simd.h say.

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
#if defined(ROTA_ISA_DOTPROD)
      const std::uint64_t to = QuadPlaces{query.cells, simd::kQuadsTogether, query.stride}.of(d / 4 + quad);
#else
      const std::uint64_t to = (d / 4 + quad) * query.stride;
#endif
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

// What one number is that has one byte, or two, as sums of products with them.
template <std::uint32_t kTerms>
ROTA_SIMD_INLINE F32s total_of(const I32s* terms) noexcept {
  const F32s first = __builtin_convertvector(terms[0], F32s);
  if constexpr (kTerms == 1) return first;
  return multiply_add(first, simd::all(256.0F), __builtin_convertvector(terms[1], F32s));
}

template <std::uint32_t kTerms>
ROTA_SIMD_INLINE F32s logits_of(const I32s* terms, const simd::TokenScales& tokens, float query_scale,
                                float mean) noexcept {
  const F32s product = total_of<kTerms>(terms) * query_scale * tokens.scales;
  return multiply_add(tokens.with_mean, simd::all(mean), product);
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
    const F32s logits = logits_of<kTerms>(&sum[q * kTerms], tokens, rows.query_scales[q], rows.means[q]);
    simd::store_bits(logits, rows.logits + q * kKeyBlock);
  }
}

// Which columns are added: of a tile, for vectors from `vector` on, in registers from `first` on.
struct TileColumns {
  std::uint64_t nth;
  std::uint32_t vector;
  std::uint64_t first;
};

// outputs[vector][dim] += weight_scale * sums over a tile's 64 tokens.
template <std::uint32_t kTerms, std::uint32_t kRegisters, std::uint32_t kVectors>
ROTA_SIMD_INLINE void add_to_outputs(const I32s (&sum)[kRegisters][kVectors], const ValueWeights& weights,
                                     const TileColumns& columns) noexcept {
  const auto [nth, vector, first] = columns;
  const float* const weight_scales = weights.weight_scales + (nth * weights.vectors + vector) / kTerms;
  float* outputs = weights.outputs + vector / kTerms * weights.stride + first * kLanes;
  const std::uint64_t stride = weights.stride;
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < kVectors / kTerms; ++q, outputs += stride) {
    const F32s scale_of_bytes = simd::all(weight_scales[q]);
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      float* const output = outputs + i * kLanes;
      const F32s total = total_of<kTerms>(&sum[i][q * kTerms]);
      simd::store_bits(multiply_add(total, scale_of_bytes, simd::load_bits<F32s>(output)), output);
    }
  }
}

// Where bytes of weights go: a vector's in a tile, from register `first` on.
struct WeightPlace {
  std::byte* bytes;
  std::uint64_t first;
  const std::uint32_t* quads;
};

// Sums of the weights are added where they are wanted.
ROTA_SIMD_INLINE void store_weights(const U32s (&numbers)[4], const WeightPlace& place,
                                    [[maybe_unused]] U32s& sums) noexcept {
#if defined(ROTA_ISA_DOTPROD)
  const U8s bytes = simd::as_bytes(numbers);
#pragma GCC unroll 4
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::memcpy(place.bytes + place.quads[place.first + i], reinterpret_cast<const std::byte*>(&bytes) + 4 * i, 4);
  }
  simd::add_bytes(sums, bytes);
#else
  simd::store_as_bytes(numbers, place.bytes + place.first * kLanes);
#endif
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
    for (std::uint64_t first = 0; first < kRegisters; first += 4) {
#pragma GCC unroll 4
      for (std::uint64_t i = 0; i < 4; ++i) {
        const std::uint64_t at = tile * kTileTokens + (first + i) * kLanes;
        const F32s weight = exp2_of(simd::load_bits<F32s>(block.logits + at) - max_logit);
        exp_sums[i] += weight;
        products[tile][first + i] = weight * simd::load_bits<F32s>(block.value_scales + at);
        largest[tile] = simd::Largest::of(products[tile][first + i], largest[tile]);
      }
    }
  }
  const simd::F32Quad most = simd::fold_four<simd::Largest>(largest[0], largest[1], largest[2], largest[3]);
  const simd::F32Quad inverse = most > kLeastInBytes ? kMost / most : simd::F32Quad{};
  simd::store_bits(most * (1 / kMost), weight_scales);
#pragma GCC unroll 4
  for (std::uint64_t tile = 0; tile < kBlockTiles; ++tile) {
    const F32s byte_scale = simd::all(inverse[tile]);
    const std::uint32_t* const quads = block.quads;
    std::byte* const bytes = block.bytes + tile * block.tile_stride;
    [[maybe_unused]] std::byte* const low_bytes = block.low_bytes + tile * block.tile_stride;
    [[maybe_unused]] U32s sums = {}, low_sums = {};
    for (std::uint64_t first = 0; first < kRegisters; first += 4) {
      U32s high[4], low[4];
#pragma GCC unroll 4
      for (std::uint64_t i = 0; i < 4; ++i) {
        const U32s whole = simd::same_bits<U32s>(simd::nearest_product(products[tile][first + i], byte_scale));
        low[i] = kTerms == 2 ? whole & 255U : whole;
        high[i] = whole >> 8;
      }
      store_weights(kTerms == 2 ? high : low, {bytes, first, quads}, sums);
      if constexpr (kTerms == 2) store_weights(low, {low_bytes, first, quads}, low_sums);
    }
#if defined(ROTA_ISA_DOTPROD)
    std::int32_t* const starts = block.starts + tile * (block.tile_stride / kTileTokens);
    starts[0] = -128 * simd::sum_of(sums);
    if constexpr (kTerms == 2) starts[1] = -128 * simd::sum_of(low_sums);
#endif
  }
  simd::store_bits((exp_sums[0] + exp_sums[1]) + (exp_sums[2] + exp_sums[3]), block.exp_sum);
}

}  // namespace rota::ops::ROTA_ISA
