// Included by rope_cpu.cpp through core/for_each_isa.h. Every instruction set gives the same bits.

#include "codec/dense/lanes.h"

namespace rota::ops::ROTA_ISA {

namespace lanes = codec::ROTA_ISA;
using lanes::F32s;
using lanes::I32s;
using lanes::kLanes;
using lanes::U32s;
using U64s [[gnu::vector_size(ROTA_ISA_LANES * 4)]] = std::uint64_t;

ROTA_LANES_INLINE std::uint64_t lanes_of(std::uint64_t left) noexcept { return left < kLanes ? left : kLanes; }

ROTA_LANES_INLINE U32s load_words(const std::uint32_t* at, std::uint64_t count) noexcept {
  U32s words = {};
  if (count == kLanes) return lanes::load_bits<U32s>(at);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = at[i];
  return words;
}

// The upper 32 bits of each product, by halves: not every instruction set multiplies wider.
ROTA_LANES_INLINE U32s multiply_high(U32s a, U32s b) noexcept {
  const U32s a_low = a & 0xffffU;
  const U32s a_high = a >> 16;
  const U32s b_low = b & 0xffffU;
  const U32s b_high = b >> 16;
  const U32s middle = a_high * b_low + (a_low * b_low >> 16);
  const U32s other = a_low * b_high + (middle & 0xffffU);
  return a_high * b_high + (middle >> 16) + (other >> 16);
}

struct Turn {
  F32s cosine, sine;
};

// Of angles in 2^-32 turns: the rest to the nearest quarter goes through the polynomials.
ROTA_LANES_INLINE Turn turn_by(U32s phase) noexcept {
  const U32s quarter = (phase + 0x20000000U) >> 30;
  const F32s x = __builtin_convertvector(lanes::same_bits<I32s>(phase - (quarter << 30)), F32s) * kRadiansPerPhase;
  const F32s z = x * x;
  const F32s sine = x + x * z * (kSine0 + z * (kSine1 + z * kSine2));
  const F32s cosine = (1.0F - 0.5F * z) + z * z * (kCosine0 + z * (kCosine1 + z * kCosine2));
  const I32s across = (quarter & 1U) != 0U;
  const U32s sign = (quarter & 2U) << 30;
  const F32s turned_cosine = across ? -sine : cosine;
  const F32s turned_sine = across ? cosine : sine;
  return {lanes::same_bits<F32s>(lanes::same_bits<U32s>(turned_cosine) ^ sign),
          lanes::same_bits<F32s>(lanes::same_bits<U32s>(turned_sine) ^ sign)};
}

// Of all pairs of one token. For neighbours both coordinates get their own, the sine with its sign.
ROTA_LANES void fill_turns(const RopeCall& call, std::uint64_t token, RopeScratch& scratch) noexcept {
  const RopeParams& p = call.params;
  const std::uint32_t* const low = call.pairs + std::uint64_t{kTurnsLow} * p.pairs;
  const std::uint32_t* const high = call.pairs + std::uint64_t{kTurnsHigh} * p.pairs;
  const std::uint32_t* const axis = call.pairs + std::uint64_t{kAxis} * p.pairs;
  for (std::uint64_t pair = 0; pair < p.pairs; pair += kLanes) {
    const std::uint64_t count = lanes_of(p.pairs - pair);
    U32s position = {};
    for (std::uint64_t i = 0; i < count; ++i) {
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
ROTA_LANES_INLINE F32s load_lanes(const std::byte* row, std::uint64_t d, std::uint64_t count) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  return count == kLanes ? lanes::load<T>(row + d * kBytes) : lanes::load<T>(row + d * kBytes, {count, kBytes});
}

template <DType T>
ROTA_LANES_INLINE void store_lanes(F32s values, std::byte* row, std::uint64_t d, std::uint64_t count) noexcept {
  constexpr std::uint64_t kBytes = info(T).bytes;
  if (count == kLanes) {
    lanes::store<T>(values, row + d * kBytes);
  } else {
    lanes::store<T>(values, row + d * kBytes, {count, kBytes});
  }
}

// Rows are side by side here, and may be the same row: all that a step writes has been read.
template <DType From, DType To>
ROTA_LANES void turn_neighbours(const RopeCall& call, const RopeScratch& scratch, const std::byte* from,
                                std::byte* to) noexcept {
  const std::uint64_t rope_dim = 2ULL * call.params.pairs;
  for (std::uint64_t d = 0; d < rope_dim; d += kLanes) {
    const std::uint64_t count = lanes_of(rope_dim - d);
    const F32s values = load_lanes<From>(from, d, count);
    const U64s both = lanes::same_bits<U64s>(values);
    const F32s swapped = lanes::same_bits<F32s>((both << 32) | (both >> 32));
    const F32s cosine = lanes::load_bits<F32s>(scratch.cosine + d);
    const F32s sine = lanes::load_bits<F32s>(scratch.sine + d);
    store_lanes<To>(values * cosine + swapped * sine, to, d, count);
  }
}

template <DType From, DType To>
ROTA_LANES void turn_halves(const RopeCall& call, const RopeScratch& scratch, const std::byte* from,
                            std::byte* to) noexcept {
  for (const RopeCall::Run& run : call.runs) {
    for (std::uint64_t i = 0; i < run.pairs; i += kLanes) {
      const std::uint64_t count = lanes_of(run.pairs - i);
      const F32s first = load_lanes<From>(from, run.first + i, count);
      const F32s second = load_lanes<From>(from, run.second + i, count);
      const F32s cosine = lanes::load_bits<F32s>(scratch.cosine + run.pair + i);
      const F32s sine = lanes::load_bits<F32s>(scratch.sine + run.pair + i);
      store_lanes<To>(first * cosine - second * sine, to, run.first + i, count);
      store_lanes<To>(first * sine + second * cosine, to, run.second + i, count);
    }
  }
}

// Element i goes to sum i mod 16, whatever a register holds.
ROTA_LANES float sum_of_squares(const float* row, std::uint64_t dim) noexcept {
  constexpr std::uint64_t kSums = 16;
  F32s sums[kSums / kLanes] = {};
  for (std::uint64_t d = 0; d < dim; d += kSums) {
    for (std::uint64_t k = 0; k < kSums / kLanes; ++k) {
      const std::uint64_t at = d + k * kLanes;
      const F32s values =
          at < dim ? load_lanes<DType::f32>(reinterpret_cast<const std::byte*>(row), at, lanes_of(dim - at)) : F32s{};
      sums[k] += values * values;
    }
  }
  float parts[kSums];
  std::memcpy(parts, sums, sizeof(parts));
  for (std::uint64_t step = kSums / 2; step > 0; step /= 2) {
    for (std::uint64_t i = 0; i < step; ++i) parts[i] += parts[i + step];
  }
  return parts[0];
}

template <DType From, DType To>
ROTA_LANES void turn_row(const RopeCall& call, const RopeScratch& scratch, const std::byte* from,
                         std::byte* to) noexcept {
  if (call.unit == kNeighbourPair) {
    turn_neighbours<From, To>(call, scratch, from, to);
  } else {
    turn_halves<From, To>(call, scratch, from, to);
  }
}

inline constexpr RopeRows kRopeRows{
    .fill_turns = fill_turns,
    .sum_of_squares = sum_of_squares,
    .turn_row = []<std::size_t... I>(std::index_sequence<I...>) {
      return RopeRows::TurnRows{turn_row<kDTypes[I / kDTypes.size()].dtype, kDTypes[I % kDTypes.size()].dtype>...};
    }(std::make_index_sequence<kDTypes.size() * kDTypes.size()>())};

}  // namespace rota::ops::ROTA_ISA
