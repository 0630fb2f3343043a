// Part of attend_lanes.h. A sealed tile becomes lines of int8 levels, one for each cell of the page format, and lines
// are multiplied by bytes: four products to a 32-bit sum, so there are no sums across a register.

namespace rota::ops::ROTA_ISA {

using lanes::Bytes;
using lanes::U16s;
using lanes::U8s;

inline constexpr std::uint64_t kRegisterBytes = sizeof(U8s);
inline constexpr std::uint64_t kParts = kLineBytes / kRegisterBytes;  // registers of a line

// Pages hold no infinity and no NaN, but whoever made the page may have erred: they count as 0.
ROTA_LANES_INLINE F32s finite_halves(U16s halves) noexcept {
  const U16s finite = (halves & 0x7fff) < 0x7c00 ? halves : U16s{};
  return lanes::f32s_from_f16(finite);
}

// Numbers of a page's mean; `count` is a multiple of 16.
ROTA_LANES void read_mean(const std::byte* at, std::uint64_t count, float* mean) noexcept {
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    lanes::store_bits(finite_halves(lanes::load_bits<U16s>(at + 2 * i)), mean + i);
  }
}

ROTA_LANES void read_scales(const std::byte* at, bool has_mean, float unit, TileFactors& tile) noexcept {
  for (std::uint64_t i = 0; i < kTileTokens; i += kLanes) {
    const auto scales = lanes::load_bits<U16s>(at + 2 * i);
    const I32s with_mean = has_mean ? 1 - (__builtin_convertvector(scales, I32s) >> 15 & 1) : I32s{};
    lanes::store_bits(finite_halves(scales & 0x7fff) * unit, tile.factors + i);
    lanes::store_bits(__builtin_convertvector(with_mean, F32s), tile.mean_shares + i);
  }
}

// A query times `factor` as bytes, four to a quad, quads `stride` bytes apart; its low bytes apart, if there are two of
// each. Returns the sums of the bytes.
ROTA_LANES QuerySums quantize(const float* query, std::uint64_t dim, float factor, std::byte* quads,
                              std::uint64_t stride, std::byte* low_quads, std::uint64_t low_stride) noexcept {
  I32s sums = {}, low_sums = {};
  for (std::uint64_t d = 0; d < dim; d += kLanes) {
    const I32s whole = lanes::nearest(lanes::load_bits<F32s>(query + d) * factor);
    const I32s high = low_quads == nullptr ? whole : (whole + 128) >> 8;
    const I32s rest = whole - (high << 8);
    const Bytes bytes = lanes::low_bytes(lanes::same_bits<U32s>(high));
    const Bytes rest_bytes = lanes::low_bytes(lanes::same_bits<U32s>(rest));
    sums += high;
    low_sums += rest;
    for (std::uint64_t quad = 0; quad < kLanes / 4; ++quad) {
      const std::uint64_t nth = d / 4 + quad;
      std::memcpy(quads + nth * stride, reinterpret_cast<const std::byte*>(&bytes) + 4 * quad, 4);
      if (low_quads == nullptr) continue;
      std::memcpy(low_quads + nth * low_stride, reinterpret_cast<const std::byte*>(&rest_bytes) + 4 * quad, 4);
    }
  }
  QuerySums total{};
  for (std::uint64_t i = 0; i < kLanes; ++i) {
    total.high += sums[i];
    total.low += low_sums[i];
  }
  return total;
}

// Bits of each byte, from `first` on, moved to bit `to`.
template <std::uint32_t kBits>
ROTA_LANES_INLINE U8s field(U8s line, std::uint32_t first, std::uint32_t to) noexcept {
  if constexpr (kBits == 8) return line;
  const U32s words = lanes::same_bits<U32s>(line);
  const U32s moved = first > to ? words >> (first - to) : words << (to - first);
  return lanes::same_bits<U8s>(moved) & static_cast<std::uint8_t>(((1U << kBits) - 1) << to);
}

// What turns lines of codes into lines of levels.
template <std::uint32_t kBits>
struct Decoder {
  static constexpr std::uint32_t kLow = kBits == kDecoded ? 8 : low_plane_bits(kBits);
  static constexpr std::uint32_t kHigh = kBits == kDecoded ? 0 : kBits - kLow;
  static constexpr std::uint32_t kCells = group_cells(kBits);
  static constexpr std::uint32_t kLowCells = 8 / kLow;
  static constexpr std::uint32_t kLowLines = kCells / kLowCells;
  static constexpr std::uint32_t kTables = kBits <= 4 ? 1 : kBits == 8 ? 0 : (1U << kBits) / 16;

  lanes::Table16 tables[kTables == 0 ? 1 : kTables];
  std::uint8_t flip;

  ROTA_LANES_INLINE explicit Decoder(const std::uint8_t* table) noexcept : tables{}, flip(0) {
    if constexpr (kBits == 8) flip = table[0];
    if constexpr (kBits != kDecoded && kBits != 8) {
      for (std::uint32_t i = 0; i < kTables; ++i) tables[i] = lanes::load_table(table + 16 * i);
    }
  }

  // Of a cell of a group, whose lines are `low` and `high`.
  ROTA_LANES_INLINE U8s level(const U8s (&low)[kLowLines], U8s high, std::uint32_t cell) const noexcept {
    if constexpr (kBits == kDecoded) return low[0];
    if constexpr (kBits == 8) return low[0] ^ flip;
    U8s code = field<kLow>(low[cell / kLowCells], cell % kLowCells * kLow, 0);
    if constexpr (kHigh != 0) code |= field<kHigh>(high, cell * kHigh, kLow);
    if constexpr (kBits <= 4) {
      return lanes::look_up_16(tables[0], code);
    } else {
      const U8s within = code & 15;
      U8s found = lanes::look_up_16(tables[0], within);
#pragma GCC unroll 4
      for (std::uint32_t i = 1; i < kTables; ++i) {
        found = (code & 0xf0) == static_cast<std::uint8_t>(16 * i) ? lanes::look_up_16(tables[i], within) : found;
      }
      return found;
    }
  }
};

// A register of a group's lines. What is a like place in another tile is fetched.
template <std::uint32_t kBits>
struct Group {
  U8s low[Decoder<kBits>::kLowLines];
  U8s high;

  ROTA_LANES_INLINE void read(const std::byte* low_at, std::uint64_t apart, const std::byte* high_at,
                              std::intptr_t ahead) noexcept {
    using D = Decoder<kBits>;
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < D::kLowLines; ++i) {
      low[i] = lanes::load_bits<U8s>(low_at + i * apart);
      if constexpr (kBits != kDecoded) fetch_from(low_at + i * apart, ahead);
    }
    if constexpr (D::kHigh != 0) {
      high = lanes::load_bits<U8s>(high_at);
      fetch_from(high_at, ahead);
    }
  }

 private:
  ROTA_LANES_INLINE static void fetch_from(const std::byte* at, std::intptr_t ahead) noexcept {
    fetch(reinterpret_cast<const std::byte*>(reinterpret_cast<std::intptr_t>(at) + ahead));
  }
};

// Groups of keys follow each other; those of values lie in rows of `inner`, and their lines of the low plane a row
// apart. `columns` of them share a line of `ahead`.
template <std::uint32_t kBits, bool kKeySide>
ROTA_LANES void decode(const Tile& tile, std::byte* levels) noexcept {
  using D = Decoder<kBits>;
  const D decoder(tile.table);
  const std::uint64_t columns = tile.dim / 16;
  const std::uint64_t outer = kKeySide ? 1 : kTileTokens / 4 / D::kCells;
  const std::uint64_t inner = kKeySide ? tile.dim / D::kCells : columns;
  const std::uint64_t apart = kKeySide ? kLineBytes : columns * kLineBytes;
  const std::uint64_t cell_apart = kKeySide ? kLineBytes : columns * kLineBytes;
  for (std::uint64_t row = 0; row < outer; ++row) {
    for (std::uint64_t nth = 0; nth < inner; ++nth) {
      const std::uint64_t low_line = kKeySide ? nth * D::kLowLines : row * D::kLowLines * columns + nth;
      const std::uint64_t cell_line = kKeySide ? nth * D::kCells : row * D::kCells * columns + nth;
      for (std::uint64_t part = 0; part < kLineBytes; part += kRegisterBytes) {
        Group<kBits> group;
        group.read(tile.low + low_line * kLineBytes + part, apart, tile.high + (row * inner + nth) * kLineBytes + part,
                   tile.ahead[nth % kStepTiles]);
#pragma GCC unroll 8
        for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
          lanes::store_bits(decoder.level(group.low, group.high, cell),
                            levels + cell_line * kLineBytes + cell * cell_apart + part);
        }
      }
    }
  }
}

// So many sums stay in registers.
inline constexpr std::uint32_t kSums = kLanes == 16 ? 16 : 8;

constexpr std::uint32_t least(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_LANES void dot_keys(const Tile& tile, const QueryBytes& queries, std::uint32_t vector, float* sums) noexcept {
  using D = Decoder<kBits>;
  constexpr std::uint32_t kRegisters = least(4, kSums / kVectors == 0 ? 1 : kSums / kVectors);
  constexpr std::uint32_t kChains = kRegisters * kVectors >= 8 || D::kCells == 1 ? 1 : 2;  // to hide latency
  const D decoder(tile.table);
  const std::uint64_t cells = tile.dim / 4;  // of 16 tokens
  const std::uint64_t groups = cells / D::kCells;
  for (std::uint64_t first = 0; first < 4 * kParts; first += kRegisters) {
    I32s sum[kChains][kRegisters][kVectors] = {};
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) sum[0][i][v] = I32s{} + queries.starts[vector + v];
    }
    const std::byte* quads = queries.bytes + vector * tile.dim;
    const std::byte* low[kRegisters];
    const std::byte* high[kRegisters];
    std::intptr_t ahead[kRegisters];
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      const std::uint64_t line = (first + i) / kParts * groups;
      const std::uint64_t within = (first + i) % kParts * kRegisterBytes;
      low[i] = tile.low + line * D::kLowLines * kLineBytes + within;
      high[i] = tile.high + line * kLineBytes + within;
      ahead[i] = tile.ahead[(first + i) % kStepTiles];
    }
    for (std::uint64_t at = 0; at < groups * kLineBytes; at += kLineBytes) {
      Group<kBits> group[kRegisters];
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) {
        group[i].read(low[i] + at * D::kLowLines, kLineBytes, high[i] + at, ahead[i]);
      }
#pragma GCC unroll 8
      for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
        lanes::Unsigned left[kRegisters];
#pragma GCC unroll 4
        for (std::uint32_t i = 0; i < kRegisters; ++i) {
          left[i] = lanes::as_unsigned(decoder.level(group[i].low, group[i].high, cell));
        }
#pragma GCC unroll 8
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          const lanes::Signed right = lanes::as_signed(lanes::four_bytes(quads + 4 * (cell * kVectors + v)));
#pragma GCC unroll 4
          for (std::uint32_t i = 0; i < kRegisters; ++i) lanes::dot4(sum[cell % kChains][i][v], left[i], right);
        }
      }
      quads += 4 * kVectors * D::kCells;
    }
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < kRegisters; ++i) {
        const I32s total = kChains == 1 ? sum[0][i][v] : sum[0][i][v] + sum[kChains - 1][i][v];
        lanes::store_bits(__builtin_convertvector(total, F32s),
                          sums + (vector + v) * kTileTokens + (first + i) * kLanes);
      }
    }
  }
}

// outputs[vector][dim] += factor * sums over a tile's 64 tokens.
template <std::uint32_t kBits, std::uint32_t kVectors, std::uint32_t kRegisters>
ROTA_LANES_INLINE void add_tile_columns(const Tile& tile, const Decoder<kBits>& decoder, const ValueWeights& weights,
                                        std::uint32_t vector, std::uint64_t first) noexcept {
  using D = Decoder<kBits>;
  const std::uint64_t row_bytes = tile.dim / 16 * kLineBytes;
  I32s sum[kRegisters][kVectors] = {};
  const std::byte* low = tile.low + first * kRegisterBytes;
  const std::byte* high = tile.high + first * kRegisterBytes;
  const std::byte* bytes = weights.bytes + vector * kTileTokens;
  for (std::uint32_t row = 0; row < kTileTokens / 4 / D::kCells; ++row) {
    Group<kBits> group[kRegisters];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      group[i].read(low + i * kRegisterBytes, row_bytes, high + i * kRegisterBytes,
                    tile.ahead[(first + i) / kParts % kStepTiles]);
    }
#pragma GCC unroll 8
    for (std::uint32_t cell = 0; cell < D::kCells; ++cell) {
      lanes::Signed right[kRegisters];
#pragma GCC unroll 8
      for (std::uint32_t i = 0; i < kRegisters; ++i) {
        right[i] = lanes::as_signed(decoder.level(group[i].low, group[i].high, cell));
      }
#pragma GCC unroll 8
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        const lanes::Unsigned left = lanes::as_unsigned(lanes::four_bytes(bytes + v * kTileTokens + 4 * cell));
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < kRegisters; ++i) lanes::dot4(sum[i][v], left, right[i]);
      }
    }
    bytes += 4 * D::kCells;
    low += D::kLowLines * row_bytes;
    high += row_bytes;
  }
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kVectors; ++v) {
    const F32s factor = F32s{} + weights.factors[vector + v];
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kRegisters; ++i) {
      float* const output = weights.outputs[vector + v] + (first + i) * kLanes;
      const F32s before = lanes::load_bits<F32s>(output);
      lanes::store_bits(multiply_add(__builtin_convertvector(sum[i][v], F32s), factor, before), output);
    }
  }
}

template <std::uint32_t kBits, std::uint32_t kVectors>
ROTA_LANES void add_values(const Tile& tile, const ValueWeights& weights, std::uint32_t vector) noexcept {
  constexpr std::uint32_t kRegisters = least(4, kSums / kVectors == 0 ? 1 : kSums / kVectors);
  const Decoder<kBits> decoder(tile.table);
  const std::uint64_t registers = tile.dim / 16 * kParts;
  std::uint64_t first = 0;
  for (; first + kRegisters <= registers; first += kRegisters) {
    add_tile_columns<kBits, kVectors, kRegisters>(tile, decoder, weights, vector, first);
  }
  for (; first < registers; ++first) add_tile_columns<kBits, kVectors, 1>(tile, decoder, weights, vector, first);
}

// Sums of a tile become logits: times the query's and the tokens' factors, and what the page's mean gives where a token
// was sealed without it. A second sum, if there is one, has the query's low bytes.
ROTA_LANES void scale_sums(const float* sums, const float* low_sums, const TileFactors& tile, float query_factor,
                           float mean, float* logits) noexcept {
  for (std::uint64_t i = 0; i < kTileTokens; i += kLanes) {
    F32s sum = lanes::load_bits<F32s>(sums + i);
    if (low_sums != nullptr) sum = multiply_add(sum, F32s{} + 256.0F, lanes::load_bits<F32s>(low_sums + i));
    const F32s product = sum * query_factor * lanes::load_bits<F32s>(tile.factors + i);
    lanes::store_bits(multiply_add(lanes::load_bits<F32s>(tile.mean_shares + i), F32s{} + mean, product), logits + i);
  }
}

// Weights times the tokens' factors, as bytes of the largest of them, or as two bytes. Returns what one byte is worth.
template <bool kTwo>
ROTA_LANES float weigh_tile(const float* weights, const float* factors, std::byte* bytes,
                            std::byte* low_bytes) noexcept {
  constexpr float kMost = kTwo ? 65535.0F : 255.0F;
  F32s products[kTileTokens / kLanes];
  F32s largest = {};
  for (std::uint64_t i = 0; i < kTileTokens / kLanes; ++i) {
    products[i] = lanes::load_bits<F32s>(weights + i * kLanes) * lanes::load_bits<F32s>(factors + i * kLanes);
    largest = products[i] > largest ? products[i] : largest;
  }
  const float whole_worth = lanes::fold<lanes::Largest>(largest);
  const float inverse = whole_worth > 0 ? kMost / whole_worth : 0.0F;
  for (std::uint64_t i = 0; i < kTileTokens / kLanes; ++i) {
    const U32s whole = lanes::same_bits<U32s>(lanes::nearest(products[i] * inverse));
    lanes::store_bits(lanes::low_bytes(kTwo ? whole >> 8 : whole), bytes + i * kLanes);
    if constexpr (kTwo) lanes::store_bits(lanes::low_bytes(whole), low_bytes + i * kLanes);
  }
  return whole_worth / kMost;
}

template <std::uint32_t kBits>
inline constexpr std::array<DotKeys, kBlockSizes> kDotKeys{dot_keys<kBits, 1>, dot_keys<kBits, 2>, dot_keys<kBits, 4>,
                                                           dot_keys<kBits, 8>};
template <std::uint32_t kBits>
inline constexpr std::array<AddValues, kBlockSizes> kAddValues{add_values<kBits, 1>, add_values<kBits, 2>,
                                                               add_values<kBits, 4>, add_values<kBits, 8>};

inline constexpr TileLanes kTileLanes{
    {nullptr, nullptr, decode<2, true>, decode<3, true>, decode<4, true>, decode<5, true>, decode<6, true>, nullptr,
     decode<8, true>},
    {nullptr, nullptr, decode<2, false>, decode<3, false>, decode<4, false>, decode<5, false>, decode<6, false>,
     nullptr, decode<8, false>},
#if defined(ROTA_ISA_VNNI)  // where there are registers enough to decode while multiplying
    {kDotKeys<kDecoded>, {}, kDotKeys<2>, kDotKeys<3>, kDotKeys<4>, kDotKeys<5>, kDotKeys<6>, {}, kDotKeys<8>},
    {kAddValues<kDecoded>,
     {},
     kAddValues<2>,
     kAddValues<3>,
     kAddValues<4>,
     kAddValues<5>,
     kAddValues<6>,
     {},
     kAddValues<8>},
#else
    {kDotKeys<kDecoded>},
    {kAddValues<kDecoded>},
#endif
    read_mean,
    read_scales,
    quantize,
    scale_sums,
    weigh_tile<false>,
    weigh_tile<true>,
};

}  // namespace rota::ops::ROTA_ISA
