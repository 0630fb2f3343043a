#include "codec/turbo/pack.h"

#include <array>
#include <cstring>

namespace rota::codec {
namespace {

using ops::kTileTokens;

constexpr std::uint64_t kLineWords = ops::kLineBytes / sizeof(std::uint32_t);
constexpr std::uint64_t kCellTokens = 16;  // of keys

std::uint32_t load_word(const void* at) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

void store_word(std::uint32_t word, void* at) noexcept { std::memcpy(at, &word, sizeof(word)); }

using Codes [[gnu::vector_size(16)]] = std::uint8_t;
using Words [[gnu::vector_size(16)]] = std::uint32_t;
using DimWords = std::array<Words, 4>;  // of 16 dims

Words words_of(const Codes& codes) noexcept {
  Words words;
  std::memcpy(&words, &codes, sizeof(words));
  return words;
}

// Four bytes for each dim, from as many rows.
DimWords words_of_dims(const std::uint8_t* codes, std::uint64_t apart) noexcept {
  Codes rows[4];
  for (std::uint64_t i = 0; i < 4; ++i) std::memcpy(&rows[i], codes + i * apart, sizeof(Codes));
#define ROTA_LOWER_BYTES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ROTA_UPPER_BYTES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define ROTA_LOWER_PAIRS 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23
#define ROTA_UPPER_PAIRS 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31
  const Codes lower = __builtin_shufflevector(rows[0], rows[1], ROTA_LOWER_BYTES);
  const Codes upper = __builtin_shufflevector(rows[0], rows[1], ROTA_UPPER_BYTES);
  const Codes other_lower = __builtin_shufflevector(rows[2], rows[3], ROTA_LOWER_BYTES);
  const Codes other_upper = __builtin_shufflevector(rows[2], rows[3], ROTA_UPPER_BYTES);
  return {words_of(__builtin_shufflevector(lower, other_lower, ROTA_LOWER_PAIRS)),
          words_of(__builtin_shufflevector(lower, other_lower, ROTA_UPPER_PAIRS)),
          words_of(__builtin_shufflevector(upper, other_upper, ROTA_LOWER_PAIRS)),
          words_of(__builtin_shufflevector(upper, other_upper, ROTA_UPPER_PAIRS))};
#undef ROTA_LOWER_BYTES
#undef ROTA_UPPER_BYTES
#undef ROTA_LOWER_PAIRS
#undef ROTA_UPPER_PAIRS
}

// One plane of one tile, beside the tile's codes.
template <class Byte, class Code>
struct TilePlane {
  Byte* lines;
  Code* codes;
  std::uint64_t dim;
  std::uint32_t first_bit;

  Byte* word(std::uint64_t line, std::uint64_t row) const noexcept {
    return lines + (line * kLineWords + row) * sizeof(std::uint32_t);
  }
};

template <std::uint32_t kBits>
struct Planes {
  static constexpr std::uint64_t kCells = 8 / kBits;
  static constexpr std::uint32_t kMask = ((1U << kBits) - 1) * 0x01010101U;  // of four codes, a byte each

  // Calls body(line, row, first cell, cells, codes of the first) for each word of a key tile. A line begins with the
  // end of one 16 tokens and ends with the next ones' beginning where `dim` is not a multiple of its cells' dims.
  template <class Body>
  static void for_each_key_word(std::uint64_t dim, const Body& body) noexcept {
    for (std::uint64_t token = 0; token < kTileTokens; ++token) {
      std::uint64_t nth = token / kCellTokens * (dim / 4);
      for (std::uint64_t d = 0; d < dim;) {
        const std::uint64_t cell = nth % kCells;
        const std::uint64_t cells = kCells - cell < (dim - d) / 4 ? kCells - cell : (dim - d) / 4;
        body(nth / kCells, token % kCellTokens, cell, cells, token * dim + d);
        nth += cells;
        d += 4 * cells;
      }
    }
  }

  static void pack_keys(const TilePlane<std::byte, const std::uint8_t>& plane) noexcept {
    if (plane.dim / 4 % kCells == 0) return pack_whole_keys(plane);
    for_each_key_word(plane.dim, [&](std::uint64_t line, std::uint64_t row, std::uint64_t cell, std::uint64_t cells,
                                     std::uint64_t first) {
      std::byte* const at = plane.word(line, row);
      std::uint32_t word = cell == 0 ? 0 : load_word(at);
      for (std::uint64_t i = 0; i < cells; ++i) {
        word |= (load_word(plane.codes + first + 4 * i) >> plane.first_bit & kMask) << (cell + i) * kBits;
      }
      store_word(word, at);
    });
  }

  // The usual case: 16 tokens' lines are their own.
  static void pack_whole_keys(const TilePlane<std::byte, const std::uint8_t>& plane) noexcept {
    const std::uint64_t lines = plane.dim / 4 / kCells;
    for (std::uint64_t token = 0; token < kTileTokens; ++token) {
      const std::uint8_t* codes = plane.codes + token * plane.dim;
      std::byte* at = plane.word(token / kCellTokens * lines, token % kCellTokens);
      for (std::uint64_t line = 0; line < lines; ++line) {
        std::uint32_t word = 0;
        for (std::uint64_t cell = 0; cell < kCells; ++cell) {
          word |= (load_word(codes + 4 * cell) >> plane.first_bit & kMask) << cell * kBits;
        }
        store_word(word, at);
        codes += 4 * kCells;
        at += ops::kLineBytes;
      }
    }
  }

  static void unpack_keys(const TilePlane<const std::byte, std::uint8_t>& plane) noexcept {
    for_each_key_word(plane.dim, [&](std::uint64_t line, std::uint64_t row, std::uint64_t cell, std::uint64_t cells,
                                     std::uint64_t first) {
      const std::uint32_t word = load_word(plane.word(line, row));
      for (std::uint64_t i = 0; i < cells; ++i) {
        std::uint8_t* const four = plane.codes + first + 4 * i;
        store_word(load_word(four) | (word >> (cell + i) * kBits & kMask) << plane.first_bit, four);
      }
    });
  }

  // Four dims of four tokens: a matrix of bytes, transposed.
  static std::array<std::uint32_t, 4> transposed(const std::array<std::uint32_t, 4>& rows) noexcept {
    constexpr std::uint32_t kEven = 0x00ff00ff;
    const std::uint32_t even = (rows[0] & kEven) | (rows[1] & kEven) << 8;
    const std::uint32_t odd = (rows[0] >> 8 & kEven) | (rows[1] & ~kEven);
    const std::uint32_t other_even = (rows[2] & kEven) | (rows[3] & kEven) << 8;
    const std::uint32_t other_odd = (rows[2] >> 8 & kEven) | (rows[3] & ~kEven);
    return {(even & 0xffff) | other_even << 16, (odd & 0xffff) | other_odd << 16,
            even >> 16 | (other_even & 0xffff0000), odd >> 16 | (other_odd & 0xffff0000)};
  }

  // Calls body(line, first row, codes of the first) for each four words of a value tile: four dims of 4 * kCells
  // tokens.
  template <class Body>
  static void for_each_value_words(std::uint64_t dim, const Body& body) noexcept {
    for (std::uint64_t group = 0; group < kTileTokens / (4 * kCells); ++group) {
      for (std::uint64_t d = 0; d < dim; d += 4) {
        body(group * (dim / kLineWords) + d / kLineWords, d % kLineWords, group * 4 * kCells * dim + d);
      }
    }
  }

  // 16 dims of four tokens at a time: what stands in rows of tokens becomes four bytes for each dim.
  static void pack_values(const TilePlane<std::byte, const std::uint8_t>& plane) noexcept {
    for (std::uint64_t group = 0; group < kTileTokens / (4 * kCells); ++group) {
      for (std::uint64_t d = 0; d < plane.dim; d += kLineWords) {
        DimWords line{};
        for (std::uint64_t cell = 0; cell < kCells; ++cell) {
          const DimWords words = words_of_dims(plane.codes + (group * kCells + cell) * 4 * plane.dim + d, plane.dim);
          for (std::size_t i = 0; i < line.size(); ++i) {
            line[i] |= (words[i] >> plane.first_bit & kMask) << cell * kBits;
          }
        }
        std::memcpy(plane.word((group * plane.dim + d) / kLineWords, 0), line.data(), sizeof(line));
      }
    }
  }

  static void unpack_values(const TilePlane<const std::byte, std::uint8_t>& plane) noexcept {
    for_each_value_words(plane.dim, [&](std::uint64_t line, std::uint64_t row, std::uint64_t first) {
      std::array<std::uint32_t, 4> words{};
      std::memcpy(words.data(), plane.word(line, row), sizeof(words));
      for (std::uint64_t cell = 0; cell < kCells; ++cell) {
        std::array<std::uint32_t, 4> columns{};
        for (std::uint64_t i = 0; i < 4; ++i) columns[i] = words[i] >> cell * kBits & kMask;
        const auto rows = transposed(columns);
        for (std::uint64_t i = 0; i < 4; ++i) {
          std::uint8_t* const four = plane.codes + first + (4 * cell + i) * plane.dim;
          store_word(load_word(four) | rows[i] << plane.first_bit, four);
        }
      }
    });
  }
};

// Calls body(Planes<bits>, plane index, first bit) for each plane.
template <class Body>
void for_each_plane(const ops::PageLayout& layout, const Body& body) noexcept {
  for (std::uint32_t index = 0; index < ops::plane_count(layout.bits); ++index) {
    const ops::Plane plane = ops::plane_of(layout.bits, index);
    switch (plane.bits) {
      case 1: body(Planes<1>{}, index, plane.first_bit); break;
      case 2: body(Planes<2>{}, index, plane.first_bit); break;
      case 4: body(Planes<4>{}, index, plane.first_bit); break;
      default: body(Planes<8>{}, index, plane.first_bit); break;
    }
  }
}

}  // namespace

void pack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::uint8_t* codes, std::byte* page) noexcept {
  for_each_plane(layout, [&](auto planes, std::uint32_t index, std::uint32_t first_bit) {
    const TilePlane<std::byte, const std::uint8_t> plane{page + ops::plane_offset(layout, tile, index), codes,
                                                         layout.dim, first_bit};
    layout.side == ops::kKeys ? planes.pack_keys(plane) : planes.pack_values(plane);
  });
}

void unpack_tile(const ops::PageLayout& layout, std::uint32_t tile, const std::byte* page,
                 std::uint8_t* codes) noexcept {
  std::memset(codes, 0, std::size_t{kTileTokens} * layout.dim);
  for_each_plane(layout, [&](auto planes, std::uint32_t index, std::uint32_t first_bit) {
    const TilePlane<const std::byte, std::uint8_t> plane{page + ops::plane_offset(layout, tile, index), codes,
                                                         layout.dim, first_bit};
    layout.side == ops::kKeys ? planes.unpack_keys(plane) : planes.unpack_values(plane);
  });
}

}  // namespace rota::codec
