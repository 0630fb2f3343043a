// Sealed tiles, a register at a time: lines of codes become lines of int8 levels. Included through core/for_each_isa.h,
// after codec/dense/simd.h. Which level a code has is the format's table to say.
//
//   low plane   | line | line | line | line |   of one group: as many lines as hold its cells' low bits,
//   high plane  | line |                        and one line with their high bits, where codes lie in two planes
//                   |
//                   v
//   levels      | line | line | line | ... |    one for each cell, 64 int8 numbers each

#if !defined(ROTA_ISA)
#include "codec/dense/simd.h"
#endif
#include "codec/turbo/page.shared.h"

namespace rota::codec::ROTA_ISA {

inline constexpr std::uint64_t kRegisterBytes = sizeof(U8s);
inline constexpr std::uint64_t kLineRegisters = ops::kLineBytes / kRegisterBytes;

// Pages hold no infinity and no NaN, but whoever made the page may have erred: they count as 0, or -0.
ROTA_SIMD_INLINE F32s finite_halves(U16s halves) noexcept {
  const U16s finite = (halves & 0x7fff) < 0x7c00 ? halves : halves & 0x8000;
  return f32s_from_f16(finite);
}

// Scales of some tokens, and for each of them 1 if the page's mean is to be added, else 0.
struct TokenScales {
  F32s scales, with_mean;

  TokenScales() = default;
  ROTA_SIMD_INLINE explicit TokenScales(U16s halves) noexcept {
    const F32s with_sign = finite_halves(halves);
    const U32s bits = same_bits<U32s>(with_sign);
    scales = same_bits<F32s>(bits & 0x7fffffffU);
    const I32s without_mean = same_bits<I32s>(with_sign) >> 31;
    with_mean = same_bits<F32s>(~without_mean & same_bits<I32s>(all(1)));
  }
};

// Bits of each byte from `first` on, at bit `to`; others are any.
ROTA_SIMD_INLINE U8s moved(U8s line, std::uint32_t first, std::uint32_t to) noexcept {
#if defined(__aarch64__)
  return first > to ? line >> (first - to) : line << (to - first);
#else
  const U32s words = same_bits<U32s>(line);
  return same_bits<U8s>(first > to ? words >> (first - to) : words << (to - first));
#endif
}

// And others are 0.
template <std::uint32_t kBits>
ROTA_SIMD_INLINE U8s field(U8s line, std::uint32_t first, std::uint32_t to) noexcept {
  if constexpr (kBits == 8) return line;
  return moved(line, first, to) & static_cast<std::uint8_t>(((1U << kBits) - 1) << to);
}

// A register of each line of a group, as a decoder D has them.
template <class D>
struct CodeLines {
  U8s low[D::kLowLines];
  U8s high;

  ROTA_SIMD_INLINE void read(const std::byte* low_at, std::uint64_t apart, const std::byte* high_at) noexcept {
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < D::kLowLines; ++i) low[i] = load_bits<U8s>(low_at + i * apart);
    if constexpr (D::kHigh != 0) high = load_bits<U8s>(high_at);
  }
};

template <std::uint32_t kBits>
struct Decoder {
  static constexpr std::uint32_t kLow = ops::low_plane_bits(kBits);
  static constexpr std::uint32_t kHigh = kBits - kLow;
  static constexpr std::uint32_t kCells = ops::group_cells(kBits);
  static constexpr std::uint32_t kLowCells = 8 / kLow;
  static constexpr std::uint32_t kLowLines = kCells / kLowCells;
  static constexpr std::uint32_t kLines = kLowLines + (kHigh == 0 ? 0 : 1);
#if defined(ROTA_ISA_VBMI)
  // Bits above a code choose one of the table's copies, whatever they are.
  Table64 table;
  std::uint8_t flip = 0;

  ROTA_SIMD_INLINE explicit Decoder(const std::uint8_t* levels) noexcept : table(load_table_64(levels)) {
    if constexpr (kBits == 8) flip = levels[0];
  }

  ROTA_SIMD_INLINE U8s level(const CodeLines<Decoder>& lines, std::uint32_t cell) const noexcept {
    if constexpr (kBits == 8) return lines.low[0] ^ flip;
    U8s code = moved(lines.low[cell / kLowCells], cell % kLowCells * kLow, 0);
    if constexpr (kHigh != 0) code = choose_bits((1U << kLow) - 1, code, moved(lines.high, cell * kHigh, kLow));
    return look_up_64(table, code);
  }
#elif defined(__aarch64__)
  // Bits above a code choose one of the table's copies, as far as it has some; above those there are none.
  static constexpr std::uint32_t kTableBits = kBits < 4 || kBits == 8 ? 4 : kBits;
  Table<1U << kTableBits> table;
  std::uint8_t flip = 0;

  ROTA_SIMD_INLINE explicit Decoder(const std::uint8_t* levels) noexcept : table(levels) {
    if constexpr (kBits == 8) flip = levels[0];
  }

  ROTA_SIMD_INLINE U8s level(const CodeLines<Decoder>& lines, std::uint32_t cell) const noexcept {
    if constexpr (kBits == 8) return lines.low[0] ^ flip;
    const std::uint32_t first = cell % kLowCells * kLow;
    U8s code = moved(lines.low[cell / kLowCells], first, 0);
    if (first + kTableBits < 8) code &= static_cast<std::uint8_t>((1U << kTableBits) - 1);
    if constexpr (kHigh != 0) {
      constexpr std::uint32_t kMask = ((1U << kHigh) - 1) << kLow;
      code = choose_bits(static_cast<std::uint8_t>(~kMask), code, moved(lines.high, cell * kHigh, kLow));
    }
    return table.look_up(code);
  }
#else
  static constexpr std::uint32_t kTables = kBits <= 4 ? 1 : kBits == 8 ? 0 : (1U << kBits) / 16;

  Table16 tables[kTables == 0 ? 1 : kTables] = {};
  std::uint8_t flip = 0;

  // Levels by code, as often as 64 bytes hold them; of 8 bits, what turns codes into levels.
  ROTA_SIMD_INLINE explicit Decoder(const std::uint8_t* table) noexcept {
    if constexpr (kBits == 8) flip = table[0];
    for (std::uint64_t i = 0; i < kTables; ++i) tables[i] = load_table(table + 16 * i);
  }

  ROTA_SIMD_INLINE U8s level(const CodeLines<Decoder>& lines, std::uint32_t cell) const noexcept {
    if constexpr (kBits == 8) return lines.low[0] ^ flip;
    U8s code = field<kLow>(lines.low[cell / kLowCells], cell % kLowCells * kLow, 0);
    if constexpr (kHigh != 0) code |= field<kHigh>(lines.high, cell * kHigh, kLow);
    if constexpr (kBits <= 4) {
      return look_up_16(tables[0], code);
    } else {
      const U8s within = code & 15;
      U8s found = look_up_16(tables[0], within);
#pragma GCC unroll 4
      for (std::uint32_t i = 1; i < kTables; ++i) {
        found = (code & 0xf0) == static_cast<std::uint8_t>(16 * i) ? look_up_16(tables[i], within) : found;
      }
      return found;
    }
  }
#endif
};

}  // namespace rota::codec::ROTA_ISA
