// Included by rope_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bits.

#if !defined(ROTA_ISA)
#include "core/simd.h"
#endif
#include "codec/dense/simd.h"
#include "ops/rope/rope_rows.h"

namespace rota::ops::ROTA_ISA {

namespace simd = codec::ROTA_ISA;
using simd::F32s;
using simd::I32s;
using simd::kLanes;
using simd::lanes_of;
using simd::U32s;
using U64s [[gnu::vector_size(ROTA_ISA_WIDTH * 4)]] = std::uint64_t;

ROTA_SIMD_INLINE U32s load_words(const std::uint32_t* at, std::uint64_t count) noexcept {
  U32s words = {};
  if (count == kLanes) return simd::load_bits<U32s>(at);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = at[i];
  return words;
}

// The upper 32 bits of each product: even lanes, then odd ones, as numbers of 64 bits.
ROTA_SIMD_INLINE U32s multiply_high(U32s a, U32s b) noexcept {
  constexpr std::uint64_t kLow = 0xffffffff;
  const U64s a_pairs = simd::same_bits<U64s>(a);
  const U64s b_pairs = simd::same_bits<U64s>(b);
  const U64s even = (a_pairs & kLow) * (b_pairs & kLow);
  const U64s odd = (a_pairs >> 32) * (b_pairs >> 32);
  return simd::same_bits<U32s>((even >> 32) | (odd & ~kLow));
}

struct Turn {
  F32s cosine, sine;
};

// Of angles in 2^-32 turns: the rest to the nearest quarter goes through the polynomials.
ROTA_SIMD_INLINE Turn turn_by(U32s phase) noexcept {
  const U32s quarter = (phase + 0x20000000U) >> 30;
  const F32s x = __builtin_convertvector(simd::same_bits<I32s>(phase - (quarter << 30)), F32s) * kRadiansPerPhase;
  const F32s z = x * x;
  const F32s sine = x + x * z * (kSine0 + z * (kSine1 + z * kSine2));
  const F32s cosine = (1.0F - 0.5F * z) + z * z * (kCosine0 + z * (kCosine1 + z * kCosine2));
  const I32s across = (quarter & 1U) != 0U;
  const U32s sign = (quarter & 2U) << 30;
  const F32s turned_cosine = across ? -sine : cosine;
  const F32s turned_sine = across ? cosine : sine;
  return {simd::same_bits<F32s>(simd::same_bits<U32s>(turned_cosine) ^ sign),
          simd::same_bits<F32s>(simd::same_bits<U32s>(turned_sine) ^ sign)};
}

// Of all pairs of one token. For neighbours both coordinates get their own, the sine with its sign.
ROTA_SIMD void fill_turns(const RopeCall& call, std::uint64_t token, RopeScratch& scratch) noexcept {
  const RopeParams& p = call.params;
  const std::uint32_t* const low = call.pairs + std::uint64_t{kTurnsLow} * p.pairs;
  const std::uint32_t* const high = call.pairs + std::uint64_t{kTurnsHigh} * p.pairs;
  const std::uint32_t* const axis = call.pairs + std::uint64_t{kAxis} * p.pairs;
  for (std::uint64_t pair = 0; pair < p.pairs; pair += kLanes) {
    const std::uint64_t count = lanes_of(p.pairs - pair);
    U32s position = U32s{} + call.positions[token];
    for (std::uint64_t i = 0; call.several_axes && i < count; ++i) {
      position[i] = call.positions[std::uint64_t{axis[pair + i]} * p.tokens + token];
    }
    const U32s phase =
        position * load_words(high + pair, count) + multiply_high(position, load_words(low + pair, count));
    const Turn turn = turn_by(phase);
    const F32s cosine = turn.cosine * p.magnitude;
    const F32s sine = turn.sine * p.magnitude;
    if (call.unit != kNeighbourPair) {
      std::memcpy(scratch.cosine + pair, &cosine, sizeof(cosine));
      std::memcpy(scratch.sine + pair, &sine, sizeof(sine));
      continue;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      scratch.cosine[2 * (pair + i)] = scratch.cosine[2 * (pair + i) + 1] = cosine[i];
      scratch.sine[2 * (pair + i)] = -sine[i];
      scratch.sine[2 * (pair + i) + 1] = sine[i];
    }
  }
}

template <DType T>
ROTA_SIMD_INLINE F32s load_lanes(const std::byte* row, std::uint64_t d, std::uint64_t count) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  return count == kLanes ? simd::load<T>(row + d * kBytes) : simd::load<T>(row + d * kBytes, {count, kBytes});
}

template <DType T>
ROTA_SIMD_INLINE void store_lanes(F32s values, std::byte* row, std::uint64_t d, std::uint64_t count) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  if (count == kLanes) {
    simd::store<T>(values, row + d * kBytes);
  } else {
    simd::store<T>(values, row + d * kBytes, {count, kBytes});
  }
}

// Rows are side by side here, and may be the same row: all that a step writes has been read.
template <DType From, DType To>
ROTA_SIMD_INLINE void turn_neighbours_at(const RopeScratch& scratch, const RopeRow& row, std::uint64_t d,
                                         std::uint64_t count) noexcept {
  __builtin_prefetch(row.next_from + d * info(From).bytes, 0);
  __builtin_prefetch(row.next_to + d * info(To).bytes, 1);
  const F32s values = load_lanes<From>(row.from, d, count);
  const U64s both = simd::same_bits<U64s>(values);
  const F32s swapped = simd::same_bits<F32s>((both << 32) | (both >> 32));
  const F32s cosine = simd::load_bits<F32s>(scratch.cosine + d);
  const F32s sine = simd::load_bits<F32s>(scratch.sine + d);
  store_lanes<To>(values * cosine + swapped * sine, row.to, d, count);
}

template <DType From, DType To>
ROTA_SIMD_INLINE void turn_halves_at(const RopeScratch& scratch, const RopeRow& row, const RopeRun& run,
                                     std::uint64_t count) noexcept {
  __builtin_prefetch(row.next_from + run.first * info(From).bytes, 0);
  __builtin_prefetch(row.next_from + run.second * info(From).bytes, 0);
  __builtin_prefetch(row.next_to + run.first * info(To).bytes, 1);
  __builtin_prefetch(row.next_to + run.second * info(To).bytes, 1);
  const F32s first = load_lanes<From>(row.from, run.first, count);
  const F32s second = load_lanes<From>(row.from, run.second, count);
  const F32s cosine = simd::load_bits<F32s>(scratch.cosine + run.pair);
  const F32s sine = simd::load_bits<F32s>(scratch.sine + run.pair);
  store_lanes<To>(first * cosine - second * sine, row.to, run.first, count);
  store_lanes<To>(first * sine + second * cosine, row.to, run.second, count);
}

template <DType From, DType To>
ROTA_SIMD void turn_row(const RopeCall& call, const RopeScratch& scratch, const RopeRow& at) noexcept {
  const RopeRow row = at;  // of our own, since stores of bytes may change anything else
  if (call.unit == kNeighbourPair) {
    const std::uint64_t rope_dim = 2ULL * call.params.pairs;
    std::uint64_t d = 0;
    for (; d + kLanes <= rope_dim; d += kLanes) turn_neighbours_at<From, To>(scratch, row, d, kLanes);
    if (d < rope_dim) turn_neighbours_at<From, To>(scratch, row, d, rope_dim - d);
    return;
  }
  for (RopeRun run : call.runs) {
    for (; run.pairs >= kLanes;
         run = {run.pair + kLanes, run.pairs - kLanes, run.first + kLanes, run.second + kLanes}) {
      turn_halves_at<From, To>(scratch, row, run, kLanes);
    }
    if (run.pairs > 0) turn_halves_at<From, To>(scratch, row, run, run.pairs);
  }
}

// Widens a row and adds its squares. Element i goes to sum i mod 16, whatever a register holds.
template <DType From>
ROTA_SIMD float widen_and_square(const std::byte* from, float* row, std::uint64_t dim) noexcept {
  constexpr std::uint64_t kSums = 16;
  auto* const to = reinterpret_cast<std::byte*>(row);
  F32s sums[kSums / kLanes] = {};
  for (std::uint64_t d = 0; d < dim; d += kSums) {
    for (std::uint64_t k = 0; k < kSums / kLanes; ++k) {
      const std::uint64_t at = d + k * kLanes;
      if (at >= dim) break;
      const F32s values = load_lanes<From>(from, at, lanes_of(dim - at));
      sums[k] += values * values;
      store_lanes<DType::f32>(values, to, at, lanes_of(dim - at));
    }
  }
  float parts[kSums];
  std::memcpy(parts, sums, sizeof(parts));
  for (std::uint64_t step = kSums / 2; step > 0; step /= 2) {
    for (std::uint64_t i = 0; i < step; ++i) parts[i] += parts[i + step];
  }
  return parts[0];
}

// A row of scratch, whose end is padded. No weight: nullptr.
ROTA_SIMD void scale_row(float* row, float scale, const float* weight, std::uint64_t dim) noexcept {
  for (std::uint64_t d = 0; d < dim; d += kLanes) {
    F32s values = simd::load_bits<F32s>(row + d) * scale;
    if (weight != nullptr) values = values * simd::load_bits<F32s>(weight + d);
    std::memcpy(row + d, &values, sizeof(values));
  }
}

inline constexpr RopeRows kRopeRows{
    .fill_turns = fill_turns,
    .widen_and_square = {widen_and_square<DType::f32>, widen_and_square<DType::f16>, widen_and_square<DType::bf16>},
    .scale_row = scale_row,
    .turn_row = codec::for_type_pairs<RopeRows::TurnRow>(
        []<DType From, DType To>() -> RopeRows::TurnRow { return turn_row<From, To>; })};

}  // namespace rota::ops::ROTA_ISA
