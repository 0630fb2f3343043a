// Included by seal_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bytes: the floating-point
// numbers here are exact.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "codec/turbo/rotation_simd.h"
#include "ops/seal/seal_rows.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;
using simd::F32s;
using simd::I32s;
using simd::kLanes;
using simd::U16s;
using simd::U32s;
using F64s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = double;
using I64s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int64_t;
using HalfF32s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = float;
using HalfI32s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = std::int32_t;
using I16s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::int16_t;
using U8s [[gnu::vector_size(ROTA_ISA_WIDTH * 2)]] = std::uint8_t;

inline constexpr std::uint64_t kShortLanes = 2 * kLanes;

template <class Vector>
ROTA_SIMD_INLINE Vector load(const void* at) noexcept {
  return simd::load_bits<Vector>(at);
}

template <class Vector>
ROTA_SIMD_INLINE void store(const Vector& vector, void* at) noexcept {
  std::memcpy(at, &vector, sizeof(vector));
}

// What g++ 12 makes of __builtin_convertvector is element after element.
ROTA_SIMD_INLINE U8s bytes_from(I16s shorts) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<U8s>(_mm512_maskz_cvtepi16_epi8(0xffffffff, simd::same_bits<__m512i>(shorts)));
#elif ROTA_ISA_WIDTH == 8
  const auto all = simd::same_bits<__m256i>(shorts);
  return simd::same_bits<U8s>(_mm_packus_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#elif defined(__SSE2__)
  const auto all = simd::same_bits<__m128i>(shorts);
  return simd::same_bits<U8s>(_mm_cvtsi128_si64(_mm_packus_epi16(all, all)));
#elif defined(__aarch64__)
  return simd::same_bits<U8s>(vmovn_s16(simd::same_bits<int16x8_t>(shorts)));
#else
  return __builtin_convertvector(shorts, U8s);
#endif
}

// Numbers below 2^15 in magnitude.
ROTA_SIMD_INLINE void store_shorts(I32s words, std::int16_t* at) noexcept {
#if ROTA_ISA_WIDTH == 16
  store(_mm512_maskz_cvtepi32_epi16(0xffff, simd::same_bits<__m512i>(words)), at);
#elif ROTA_ISA_WIDTH == 8
  const auto all = simd::same_bits<__m256i>(words);
  store(_mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)), at);
#elif defined(__SSE2__)
  const auto all = simd::same_bits<__m128i>(words);
  store(_mm_cvtsi128_si64(_mm_packs_epi32(all, all)), at);
#elif defined(__aarch64__)
  store(vmovn_s32(simd::same_bits<int32x4_t>(words)), at);
#else
  for (std::uint64_t i = 0; i < kLanes; ++i) at[i] = static_cast<std::int16_t>(words[i]);
#endif
}

// magnitude * factor >> 16, of unsigned numbers.
ROTA_SIMD_INLINE I16s multiply_high(I16s magnitude, std::uint16_t factor) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<I16s>(_mm512_mulhi_epu16(
      simd::same_bits<__m512i>(magnitude), simd::same_bits<__m512i>(I16s{} + static_cast<std::int16_t>(factor))));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<I16s>(_mm256_mulhi_epu16(
      simd::same_bits<__m256i>(magnitude), simd::same_bits<__m256i>(I16s{} + static_cast<std::int16_t>(factor))));
#elif defined(__SSE2__)
  return simd::same_bits<I16s>(_mm_mulhi_epu16(simd::same_bits<__m128i>(magnitude),
                                               simd::same_bits<__m128i>(I16s{} + static_cast<std::int16_t>(factor))));
#else
  I16s product;
  for (std::uint64_t i = 0; i < kShortLanes; ++i) {
    product[i] = static_cast<std::int16_t>((static_cast<std::uint32_t>(magnitude[i]) * factor) >> 16);
  }
  return product;
#endif
}

// Sums of the products of neighbours.
ROTA_SIMD_INLINE U32s multiply_pairs(I16s a, I16s b) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<U32s>(_mm512_madd_epi16(simd::same_bits<__m512i>(a), simd::same_bits<__m512i>(b)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<U32s>(_mm256_madd_epi16(simd::same_bits<__m256i>(a), simd::same_bits<__m256i>(b)));
#elif defined(__SSE2__)
  return simd::same_bits<U32s>(_mm_madd_epi16(simd::same_bits<__m128i>(a), simd::same_bits<__m128i>(b)));
#else
  U32s sums;
  for (std::uint64_t i = 0; i < kLanes; ++i) {
    sums[i] = static_cast<std::uint32_t>(a[2 * i] * b[2 * i]) + static_cast<std::uint32_t>(a[2 * i + 1] * b[2 * i + 1]);
  }
  return sums;
#endif
}

ROTA_SIMD_INLINE F64s f64s_from(HalfF32s values) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<F64s>(_mm512_maskz_cvtps_pd(0xff, simd::same_bits<__m256>(values)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<F64s>(_mm256_cvtps_pd(simd::same_bits<__m128>(values)));
#else
  return __builtin_convertvector(values, F64s);
#endif
}

ROTA_SIMD_INLINE HalfI32s truncated(F64s values) noexcept {
#if ROTA_ISA_WIDTH == 16
  return simd::same_bits<HalfI32s>(_mm512_maskz_cvttpd_epi32(0xff, simd::same_bits<__m512d>(values)));
#elif ROTA_ISA_WIDTH == 8
  return simd::same_bits<HalfI32s>(_mm256_cvttpd_epi32(simd::same_bits<__m256d>(values)));
#else
  return __builtin_convertvector(values, HalfI32s);
#endif
}

ROTA_SIMD_INLINE std::uint32_t sum_of(U32s v) noexcept {
  if constexpr (kLanes >= 16) v += simd::swap_neighbours<8 % kLanes>(v);
  if constexpr (kLanes >= 8) v += simd::swap_neighbours<4 % kLanes>(v);
  v += simd::swap_neighbours<2>(v);
  v += simd::swap_neighbours<1>(v);
  return v[0];
}

ROTA_SIMD_INLINE std::uint32_t or_of(U32s v) noexcept {
  if constexpr (kLanes >= 16) v |= simd::swap_neighbours<8 % kLanes>(v);
  if constexpr (kLanes >= 8) v |= simd::swap_neighbours<4 % kLanes>(v);
  v |= simd::swap_neighbours<2>(v);
  v |= simd::swap_neighbours<1>(v);
  return v[0];
}

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

ROTA_SIMD_INLINE std::int32_t largest_of(I32s bits) noexcept {
  std::int32_t largest = 0;
  for (std::uint64_t i = 0; i < kLanes; ++i) largest = std::max<std::int32_t>(largest, bits[i]);
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
    largest = bits > largest ? bits : largest;
  }
  return {static_cast<double>(std::bit_cast<float>(largest_of(largest))), false};
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

ROTA_SIMD_INLINE Reduced reduce(const std::int32_t* rotated, std::uint64_t dim, TokenScratch& scratch) noexcept {
  U32s any = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const I32s value = load<I32s>(rotated + i);
    any |= simd::same_bits<U32s>(value < 0 ? -value : value);
  }
  const int shift = std::max(top_bit(or_of(any)) - 14, 0);
  const I32s half_way = I32s{} + (shift == 0 ? 0 : 1 << (shift - 1));
  U32s upper = {};
  U32s lower = {};
  for (std::uint64_t i = 0; i < dim; i += kLanes) {
    const I32s value = load<I32s>(rotated + i);
    const I32s sign = value >> 31;
    I32s magnitude = (((value ^ sign) - sign) + half_way) >> shift;
    magnitude = magnitude > I32s{} + kMaxMagnitude ? I32s{} + kMaxMagnitude : magnitude;
    store_shorts((magnitude ^ sign) - sign, scratch.reduced + i);
  }
  std::memset(scratch.reduced + dim, 0, sizeof(I16s));
  for (std::uint64_t i = 0; i < dim; i += kShortLanes) {
    const I16s values = load<I16s>(scratch.reduced + i);
    const U32s squares = multiply_pairs(values, values);  // two of 30 bits
    upper += squares >> 16;
    lower += squares & 0xffffU;
  }
  return {shift, length_from(sum_of(upper), sum_of(lower))};
}

// The levels of one width, as registers want them.
template <std::uint32_t kBits>
struct Levels {
  static constexpr std::size_t kEdgeCount = kBits == kUniformBits ? 0 : (std::size_t{1} << (kBits - 1)) - 1;

  std::uint32_t of_zero;
  I16s first;
  I16s edges[kEdgeCount + 1], steps[kEdgeCount + 1];

  ROTA_SIMD_INLINE explicit Levels(const std::uint32_t* table) noexcept : of_zero(table[kMagnitudes]) {
    const auto short_at = [&](std::size_t i) { return static_cast<std::int16_t>(table[i]); };
    first = I16s{} + short_at(kMagnitudes);
    for (std::size_t j = 0; j < kEdgeCount; ++j) {
      edges[j] = I16s{} + short_at(kEdges + j);
      steps[j] = I16s{} + short_at(kMagnitudes + j + 1) - short_at(kMagnitudes + j);
    }
  }

  ROTA_SIMD_INLINE static I16s twice(I16s magnitude, Inverse inverse) noexcept {
    const I16s product =
        multiply_high(magnitude, static_cast<std::uint16_t>(inverse.factor)) >> static_cast<int>(inverse.shift - 16);
    return product > static_cast<std::int16_t>(kMaxTwice) ? I16s{} + static_cast<std::int16_t>(kMaxTwice) : product;
  }

  ROTA_SIMD_INLINE I16s level(I16s twice_value) const noexcept {
    if constexpr (kBits == kUniformBits) {
      constexpr auto kTop = static_cast<std::int16_t>(kUniformTop);
      const I16s level = (twice_value + 1) >> 1;
      return level > kTop ? I16s{} + kTop : level;
    }
    I16s level = first;
    for (std::size_t j = 0; j < kEdgeCount; ++j) level = twice_value >= edges[j] ? level + steps[j] : level;
    return level;
  }

  // What a value becomes: its level, and how many levels are closer to zero.
  struct Found {
    I16s level, index;
  };
  ROTA_SIMD_INLINE Found find(I16s twice_value) const noexcept {
    if constexpr (kBits == kUniformBits) return {level(twice_value), level(twice_value)};
    Found found{first, {}};
    for (std::size_t j = 0; j < kEdgeCount; ++j) {
      const I16s reached = twice_value >= edges[j];
      found.level = reached ? found.level + steps[j] : found.level;
      found.index = reached ? found.index + 1 : found.index;
    }
    return found;
  }

  // `sign` is -1 where the value is not positive, else 0.
  ROTA_SIMD_INLINE static I16s code(I16s index, I16s sign) noexcept {
    if constexpr (kBits == kUniformBits) return 128 + ((index ^ sign) - sign);
    return static_cast<std::int16_t>(1 << (kBits - 1)) + (index ^ sign);
  }
};

ROTA_SIMD_INLINE I16s magnitude_of(I16s value) noexcept { return value < 0 ? -value : value; }

template <std::uint32_t kBits>
struct Sums {
  U32s dot, norm;

  ROTA_SIMD_INLINE void add(I16s magnitude, I16s level) noexcept {
    dot += multiply_pairs(magnitude, level);
    norm += multiply_pairs(level, level);
  }

  // The zeros behind the last dim have levels, too.
  ROTA_SIMD_INLINE Fit fit(const Levels<kBits>& levels, std::uint64_t dim) const noexcept {
    const auto zeros = static_cast<std::uint32_t>((kShortLanes - dim % kShortLanes) % kShortLanes);
    return {sum_of(dot), sum_of(norm) - zeros * levels.of_zero * levels.of_zero};
  }
};

// A tie keeps the earlier one.
ROTA_SIMD_INLINE Fit better_of(const Fit& earlier, const Fit& later) noexcept {
  return fits_better(later, earlier) ? later : earlier;
}

// The best fit of three candidates.
template <std::uint32_t kBits>
ROTA_SIMD_INLINE Fit best_of(const Levels<kBits>& levels, const Inverse* candidates, std::uint64_t dim,
                             const TokenScratch& scratch) noexcept {
  const Inverse low = candidates[0];
  const Inverse middle = candidates[1];
  const Inverse high = candidates[2];
  Sums<kBits> low_sums{{}, {}};
  Sums<kBits> middle_sums{{}, {}};
  Sums<kBits> high_sums{{}, {}};
  for (std::uint64_t i = 0; i < dim; i += kShortLanes) {
    const I16s magnitude = magnitude_of(load<I16s>(scratch.reduced + i));
    low_sums.add(magnitude, levels.level(Levels<kBits>::twice(magnitude, low)));
    middle_sums.add(magnitude, levels.level(Levels<kBits>::twice(magnitude, middle)));
    high_sums.add(magnitude, levels.level(Levels<kBits>::twice(magnitude, high)));
  }
  return better_of(better_of(low_sums.fit(levels, dim), middle_sums.fit(levels, dim)), high_sums.fit(levels, dim));
}

// Codes, and a few bytes beyond the last one; returns their fit.
template <std::uint32_t kBits>
ROTA_SIMD_INLINE Fit write_codes(const Levels<kBits>& levels, Inverse inverse, const TokenScratch& scratch,
                                 std::span<std::uint8_t> codes) noexcept {
  const std::uint64_t dim = codes.size();
  Sums<kBits> sums{{}, {}};
  for (std::uint64_t i = 0; i < dim; i += kShortLanes) {
    const I16s value = load<I16s>(scratch.reduced + i);
    const I16s magnitude = magnitude_of(value);
    const auto found = levels.find(Levels<kBits>::twice(magnitude, inverse));
    sums.add(magnitude, found.level);
    store(bytes_from(Levels<kBits>::code(found.index, value <= 0)), codes.data() + i);
  }
  return sums.fit(levels, dim);
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
  const Levels<kBits> levels(call.table);
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
      token.chosen = inverse_of_fit(best_of(levels, token.candidates, dim, scratch[t]));
    }
  }
  for (std::uint64_t t = 0; t < count; ++t) {
    const Token& token = tokens[t];
    scales[t] = has_mean && !token.start.centred ? kWithoutMean : 0;
    if (token.start.largest == 0) {
      std::memset(codes + t * dim, 0, dim);
      continue;
    }
    const Fit fit = write_codes(levels, token.chosen, scratch[t], {codes + t * dim, dim});
    const int exponent = token.reduced.shift + token.shift - 24 + kScaleExponent;
    scales[t] |= rule == kByRms ? scale_from(token.reduced.length.root, call.table[kInverses + 2 * kMiddleCandidate],
                                             exponent + 2 + static_cast<int>(token.chosen.shift), k)
                                : scale_from(fit.dot, fit.norm, exponent, k);
  }
}

inline constexpr SealRows kSealRows{
    add_row, {seal_tokens<2>, seal_tokens<3>, seal_tokens<4>, seal_tokens<5>, seal_tokens<6>, seal_tokens<8>}};

}  // namespace rota::ops::ROTA_ISA
