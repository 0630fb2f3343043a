// Included by seal_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bytes: the floating-point
// numbers here are exact.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "ops/seal/shorts_simd.h"  // which the others need

#include "ops/seal/seal_rows.h"

namespace rota::ops::ROTA_ISA {

// Exact: multiples of 2^-24 below 2^24.
ROTA_SIMD void add_row(const std::byte* row, std::uint64_t dim, double* sums) noexcept {
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    alignas(64) float values[kLanes];
    store(simd::load<DType::f16>(row + 2 * i), values);
    for (std::uint64_t part = 0; part < kLanes; part += kLanes / 2) {
      double* const at = sums + i + part;
      store(load<F64s>(at) + f64s_from(load<HalfF32s>(values + part)), at);
    }
  }
}

ROTA_SIMD_INLINE double sum_of(F64s v) noexcept {
  double sum = 0;
  for (std::uint64_t i = 0; i < kLanes / 2; ++i) sum += v[i];
  return sum;
}

// Of magnitudes' bits, which sort as the magnitudes.
ROTA_SIMD_INLINE std::int64_t largest_of(I64s bits) noexcept {
  std::int64_t largest = 0;
  for (std::uint64_t i = 0; i < kLanes / 2; ++i) largest = std::max<std::int64_t>(largest, bits[i]);
  return largest;
}

// What a token's rotation starts from: its values, or less the mean `centred`; the largest magnitude of it.
struct Start {
  double largest;
  bool centred;
};

ROTA_SIMD_INLINE Start load_row(const std::byte* row, std::uint64_t dim, TokenScratch& scratch) noexcept {
  I32s largest = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const F32s values = simd::load<DType::f16>(row + 2 * i);
    store(values, scratch.values + i);
    const I32s bits = simd::same_bits<I32s>(values) & std::numeric_limits<std::int32_t>::max();
    largest = Larger::of(bits, largest);
  }
  return {static_cast<double>(std::bit_cast<float>(combined<Larger>(largest))), false};
}

// The mean is left alone where removing it makes the sum of magnitudes larger.
ROTA_SIMD_INLINE Start centre_row(const std::byte* row, std::uint64_t dim, const double* mean,
                                  TokenScratch& scratch) noexcept {
  constexpr std::int64_t kMagnitude = std::numeric_limits<std::int64_t>::max();
  I64s largest = {};
  F64s growth = {};  // exact: multiples of 2^-24 below 2^27
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    store(simd::load<DType::f16>(row + 2 * i), scratch.values + i);
    for (std::uint64_t part = i; part < i + kLanes; part += kLanes / 2) {
      const F64s value = f64s_from(load<HalfF32s>(scratch.values + part));
      const F64s centred = value - load<F64s>(mean + part);
      store(centred, scratch.centred + part);
      const I64s bits = simd::same_bits<I64s>(centred) & kMagnitude;
      largest = bits > largest ? bits : largest;
      growth += simd::same_bits<F64s>(bits) - simd::same_bits<F64s>(simd::same_bits<I64s>(value) & kMagnitude);
    }
  }
  if (sum_of(growth) > 0) return load_row(row, dim, scratch);
  return {std::bit_cast<double>(largest_of(largest)), true};
}

// Twice the mantissas with their signs, towards zero, to mantissas: rounded, at most 65535, the rotation's signs on.
template <class Ints>
ROTA_SIMD_INLINE Ints mantissas(Ints twice, Ints negated) noexcept {
  const Ints sign = twice >> 31;
  Ints magnitude = (((twice ^ sign) - sign) + 1) >> 1;
  magnitude = magnitude > 65535 ? Ints{} + 65535 : magnitude;
  const Ints turned = sign ^ negated;
  return (magnitude ^ turned) - turned;
}

ROTA_SIMD_INLINE void fill_mantissas(Start start, double factor, const SealCall& call, TokenScratch& scratch) noexcept {
  const std::uint64_t dim = call.params.layout_.dim;
  if (start.centred) {
    for (std::uint64_t i = 0; i < dim; i += kLanes / 2) {
      const HalfI32s twice = truncated(load<F64s>(scratch.centred + i) * factor);
      store(mantissas(twice, load<HalfI32s>(call.negated + i)), scratch.mixed + i);
    }
    return;
  }
  const auto narrow = static_cast<float>(factor);
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const I32s twice = __builtin_convertvector(load<F32s>(scratch.values + i) * narrow, I32s);
    store(mantissas(twice, load<I32s>(call.negated + i)), scratch.mixed + i);
  }
}

ROTA_SIMD_INLINE I32s* vectors(std::int32_t* values) noexcept { return reinterpret_cast<I32s*>(values); }

// Returns the rotated values, without the Hadamard's factor.
ROTA_SIMD_INLINE const std::int32_t* rotate(const SealCall& call, TokenScratch& scratch) noexcept {
  const std::uint64_t size = std::uint64_t{1} << call.params.rotation.k;
  std::int32_t* rotated = scratch.mixed;
  if (call.params.rotation.m > 1) {
    simd::hartley(vectors(scratch.mixed), vectors(scratch.other),
                  {reinterpret_cast<const std::int32_t*>(call.table + kHartleyRow), call.params.rotation.m, size, 13});
    rotated = scratch.other;
  }
  simd::hadamard(vectors(rotated), call.params.layout_.dim, size);
  return rotated;
}

// Numbers of 15 bits and a sign, the largest with its top bit set, into scratch, zeros behind them; how far they were
// shifted, and their length.
struct Reduced {
  int shift;
  Length length;
};

// Rounded, away from zero at half way, to 15 bits and a sign.
ROTA_SIMD_INLINE I32s shifted(I32s value, I32s half_way, int shift) noexcept {
  const I32s sign = value >> 31;
  I32s magnitude = (((value ^ sign) - sign) + half_way) >> shift;
  magnitude = magnitude > I32s{} + kMaxMagnitude ? I32s{} + kMaxMagnitude : magnitude;
  return (magnitude ^ sign) - sign;
}

ROTA_SIMD_INLINE Reduced reduce(const std::int32_t* rotated, std::uint64_t dim, TokenScratch& scratch) noexcept {
  U32s any = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const I32s value = load<I32s>(rotated + i);
    any |= simd::same_bits<U32s>(value < 0 ? -value : value);
  }
  const int shift = std::max(top_bit(combined<Or>(any)) - 14, 0);
  const I32s half_way = I32s{} + (shift == 0 ? 0 : 1 << (shift - 1));
  U32s upper = {};
  U32s lower = {};
  for (std::uint64_t i = 0; i < dim; i += kShortLanes) {
    const I16s values =
        shorts_from(shifted(load<I32s>(rotated + i), half_way, shift),
                    i + kLanes < dim ? shifted(load<I32s>(rotated + i + kLanes), half_way, shift) : I32s{});
    store(values, scratch.reduced + i);
    const U32s squares = multiply_pairs(values, values);  // two of 30 bits
    upper += squares >> 16;
    lower += squares & 0xffffU;
  }
  std::memset(scratch.reduced + dim, 0, 2 * sizeof(I16s));
  return {shift, length_from(combined<simd::Sum>(upper), combined<simd::Sum>(lower))};
}

// Magnitudes, twice in steps: each a byte.
ROTA_SIMD_INLINE U8s twice_in_steps(const ShortPair& magnitudes, Inverse inverse) noexcept {
  const auto factor = static_cast<std::uint16_t>(inverse.factor);
  const auto shift = static_cast<int>(inverse.shift - 16);
  return packed(multiply_high(magnitudes.first, factor) >> shift, multiply_high(magnitudes.second, factor) >> shift);
}

// What a magnitude becomes: its level, and how many levels are closer to zero.
struct Found {
  U8s level, index;
};

// The levels of one width, as registers want them.
//
//   twice in steps     0 .......... 15 | 16 ......... 31 | ...      16 cells
//   edges                         x    |        x        |          those of a cell at most
//   level, index       at the cell's beginning, and one step on for each edge that is passed
template <std::uint32_t kBits>
struct Levels {
  static constexpr std::size_t kEdgesOfCell = edges_of_cell(kBits);

  simd::Table16 level, index, edges[kEdgesOfCell], steps[kEdgesOfCell];

  ROTA_SIMD_INLINE explicit Levels(const LevelCells& cells) noexcept
      : level(simd::load_table(cells.level)), index(simd::load_table(cells.index)) {
    for (std::size_t i = 0; i < kEdgesOfCell; ++i) {
      edges[i] = simd::load_table(cells.before_edges[i]);
      steps[i] = simd::load_table(cells.steps[i]);
    }
  }

  ROTA_SIMD_INLINE Found find(U8s twice) const noexcept {
    const U8s cell = simd::same_bits<U8s>(simd::same_bits<U32s>(twice) >> 4) & 15;
    Found found{simd::look_up_16(level, cell), simd::look_up_16(index, cell)};
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kEdgesOfCell; ++i) {
      const U8s reached = simd::same_bits<U8s>(twice > simd::look_up_16(edges[i], cell));
      found.level += reached & simd::look_up_16(steps[i], cell);
      found.index -= reached;
    }
    return found;
  }

  // `sign` is -1 where the value is not positive, else 0.
  ROTA_SIMD_INLINE static U8s code(U8s index, U8s sign) noexcept {
    return static_cast<std::uint8_t>(1 << (kBits - 1)) + (index ^ sign);
  }
};

// All of them, one after the other.
template <>
struct Levels<kUniformBits> {
  ROTA_SIMD_INLINE explicit Levels(const LevelCells&) noexcept {}

  ROTA_SIMD_INLINE Found find(U8s twice) const noexcept {
    const U8s level = (twice >> 1) + (twice & 1);
    const U8s most = level < kUniformTop ? level : U8s{} + static_cast<std::uint8_t>(kUniformTop);
    return {most, most};
  }
  ROTA_SIMD_INLINE static U8s code(U8s index, U8s sign) noexcept { return 128 + ((index ^ sign) - sign); }
};

ROTA_SIMD_INLINE I16s magnitude_of(I16s value) noexcept { return value < 0 ? -value : value; }

ROTA_SIMD_INLINE ShortPair load_pair(const std::int16_t* at) noexcept {
  return {load<I16s>(at), load<I16s>(at + kShortLanes)};
}
ROTA_SIMD_INLINE ShortPair magnitudes_of(const ShortPair& values) noexcept {
  return {magnitude_of(values.first), magnitude_of(values.second)};
}

struct Sums {
  U32s dot = {}, norm = {};

  ROTA_SIMD_INLINE void add(const ShortPair& magnitudes, U8s level) noexcept {
    const ShortPair levels = unpacked(level);
    dot += multiply_pairs(magnitudes.first, levels.first) + multiply_pairs(magnitudes.second, levels.second);
    norm += multiply_pairs(levels.first, levels.first) + multiply_pairs(levels.second, levels.second);
  }

  // The zeros behind the last dim have levels, too.
  ROTA_SIMD_INLINE Fit fit(const LevelCells& cells, std::uint64_t dim) const noexcept {
    const auto zeros = static_cast<std::uint32_t>((kByteLanes - dim % kByteLanes) % kByteLanes);
    return {combined<simd::Sum>(dot), combined<simd::Sum>(norm) - zeros * cells.level[0] * cells.level[0]};
  }
};

// A tie keeps the earlier one.
ROTA_SIMD_INLINE Fit better_of(const Fit& earlier, const Fit& later) noexcept {
  return fits_better(later, earlier) ? later : earlier;
}

// The best fit of three candidates.
template <std::uint32_t kBits>
ROTA_SIMD_INLINE Fit best_of(const LevelCells& cells, const Inverse* candidates, std::uint64_t dim,
                             const TokenScratch& scratch) noexcept {
  const Levels<kBits> levels(cells);
  const Inverse low = candidates[0];
  const Inverse middle = candidates[1];
  const Inverse high = candidates[2];
  Sums low_sums, middle_sums, high_sums;
  for (std::uint64_t i = 0; i < dim; i += kByteLanes) {
    const ShortPair magnitudes = magnitudes_of(load_pair(scratch.reduced + i));
    low_sums.add(magnitudes, levels.find(twice_in_steps(magnitudes, low)).level);
    middle_sums.add(magnitudes, levels.find(twice_in_steps(magnitudes, middle)).level);
    high_sums.add(magnitudes, levels.find(twice_in_steps(magnitudes, high)).level);
  }
  return better_of(better_of(low_sums.fit(cells, dim), middle_sums.fit(cells, dim)), high_sums.fit(cells, dim));
}

// Codes, and a few bytes beyond the last one; returns their fit.
template <std::uint32_t kBits>
ROTA_SIMD_INLINE Fit write_codes(const LevelCells& cells, Inverse inverse, const TokenScratch& scratch,
                                 std::span<std::uint8_t> codes) noexcept {
  const Levels<kBits> levels(cells);
  const std::uint64_t dim = codes.size();
  Sums sums;
  for (std::uint64_t i = 0; i < dim; i += kByteLanes) {
    const ShortPair values = load_pair(scratch.reduced + i);
    const ShortPair magnitudes = magnitudes_of(values);
    const Found found = levels.find(twice_in_steps(magnitudes, inverse));
    sums.add(magnitudes, found.level);
    const U8s positive = packed(values.first, values.second);  // its magnitude, or 255, where positive: else 0
    store_packed(Levels<kBits>::code(found.index, simd::same_bits<U8s>(positive == 0)), codes.data() + i);
  }
  return sums.fit(cells, dim);
}

ROTA_SIMD_INLINE std::uint32_t largest_magnitude(std::uint64_t dim, const TokenScratch& scratch) noexcept {
  I16s largest = {};
  for (std::uint64_t i = 0; i < dim; i += kShortLanes) {
    const I16s magnitude = magnitude_of(load<I16s>(scratch.reduced + i));
    largest = magnitude > largest ? magnitude : largest;
  }
  std::int16_t found = 0;
  for (std::uint64_t i = 0; i < kShortLanes; ++i) found = std::max<std::int16_t>(found, largest[i]);
  return static_cast<std::uint32_t>(found);
}

// A token on its way. Several go together, step by step: each step ends in a few numbers that the next one waits for,
// and meanwhile the other tokens' steps run.
struct Token {
  const std::int32_t* rotated;
  Start start;
  int shift;
  Inverse chosen;
  Reduced reduced;
  Inverse candidates[kCandidates];
};

template <std::uint32_t kBits>
ROTA_SIMD void seal_tokens(const SealCall& call, const TokenRows& together) noexcept {
  const auto [rows, count, scratch, codes, scales] = together;
  const std::uint64_t dim = call.params.layout_.dim;
  const std::uint32_t k = call.params.rotation.k;
  const std::uint32_t rule = call.params.scale_rule;
  const bool has_mean = call.params.layout_.has_mean != 0;
  Token tokens[kTokensTogether];
  for (std::uint64_t t = 0; t < count; ++t) {
    tokens[t].start = has_mean ? centre_row(rows[t], dim, call.mean, scratch[t]) : load_row(rows[t], dim, scratch[t]);
  }
  for (std::uint64_t t = 0; t < count; ++t) {
    Token& token = tokens[t];
    if (token.start.largest == 0) continue;
    token.shift = exponent_of(token.start.largest) + 25 - 16;
    fill_mantissas(token.start, power_of_two(25 - token.shift), call, scratch[t]);
    token.rotated = rotate(call, scratch[t]);
  }
  for (std::uint64_t t = 0; t < count; ++t) {
    Token& token = tokens[t];
    if (token.start.largest == 0) continue;
    token.reduced = reduce(token.rotated, dim, scratch[t]);
    for (std::size_t c = 0; c < kCandidates; ++c) {
      const std::uint32_t* const constants = call.table + kInverses + 2 * c;
      token.candidates[c] = inverse_of_length(token.reduced.length, constants[0], constants[1], k / 2);
    }
    token.chosen = token.candidates[kMiddleCandidate];
  }
  for (std::uint64_t t = 0; t < count && rule == kBySearch; ++t) {
    Token& token = tokens[t];
    if (token.start.largest == 0) continue;
    if constexpr (kBits == kUniformBits) {
      token.chosen = inverse_of_largest(largest_magnitude(dim, scratch[t]));
    } else {
      token.chosen = inverse_of_fit(best_of<kBits>(call.cells, token.candidates, dim, scratch[t]));
    }
  }
  for (std::uint64_t t = 0; t < count; ++t) {
    const Token& token = tokens[t];
    scales[t] = has_mean && !token.start.centred ? kWithoutMean : 0;
    if (token.start.largest == 0) {
      std::memset(codes + t * dim, 0, dim);
      continue;
    }
    const Fit fit = write_codes<kBits>(call.cells, token.chosen, scratch[t], {codes + t * dim, dim});
    const int exponent = token.reduced.shift + token.shift - 24 + kScaleExponent;
    scales[t] |= rule == kByRms ? scale_from(token.reduced.length.root, call.table[kInverses + 2 * kMiddleCandidate],
                                             exponent + 2 + static_cast<int>(token.chosen.shift), k)
                                : scale_from(fit.dot, fit.norm, exponent, k);
  }
}

inline constexpr SealRows kSealRows{
    add_row, {seal_tokens<2>, seal_tokens<3>, seal_tokens<4>, seal_tokens<5>, seal_tokens<6>, seal_tokens<8>}};

}  // namespace rota::ops::ROTA_ISA
