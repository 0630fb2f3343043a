#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

// What the definition of `seal` computes with: integers that are wide enough for anything, and its deliberate errors.

namespace rota::ops::reference {

// Deliberate errors, one in each step: tests prove that their data tells every one of them apart.
enum class Mutation : std::uint8_t {
  none,
  infinity_is_zero,
  mean_counts_sinks,
  mean_rounds_down,
  mean_ties_away,
  mean_always_removed,
  mean_removed_at_least_as_large,
  mantissas_truncate,
  mantissas_reach_65536,
  signs_of_the_other_side,
  hartley_truncates,
  hartley_row_off_by_one,
  magnitudes_have_14_bits,
  magnitudes_truncate,
  root_is_rounded,
  step_is_rounded,
  parity_of_k_ignored,
  edge_belongs_below,
  zero_is_positive,
  uniform_truncates,
  largest_is_off_by_one,
  last_candidate_left_out,
  tie_takes_later_candidate,
  no_second_decision,
  second_step_is_rounded,
  rest_of_scale_ignored,
  scale_ties_away,
  scale_of_the_root_of_two_ignored,
  low_plane_last,
  tokens_and_dims_swapped_in_cells,
  last,
};

__extension__ using U128 = unsigned __int128;

// f16 bits to a multiple of 2^-24.
inline std::int64_t fixed_from_half(std::uint16_t half, Mutation mutation, std::uint64_t& non_finite) {
  std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00) {
    ++non_finite;
    magnitude = magnitude > 0x7c00 || mutation == Mutation::infinity_is_zero ? 0 : 0x7bff;
  }
  const std::uint32_t exponent = magnitude >> 10;
  const std::int64_t mantissa = magnitude & 0x3ffU;
  const std::int64_t value = exponent == 0 ? mantissa : (mantissa | 0x400) << (exponent - 1);
  return (half & 0x8000U) != 0 ? -value : value;
}

inline int bits_of(U128 value) {
  const auto upper = static_cast<std::uint64_t>(value >> 64);
  return upper != 0 ? 64 + static_cast<int>(std::bit_width(upper))
                    : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value)));
}

// numerator / denominator * 2^exponent to the nearest f16, ties to even, at most 65504: exactly, by comparing.
inline std::uint32_t nearest_half(U128 numerator, U128 denominator, int exponent, bool ties_away) {
  // The result is the number of halves at or below the quotient, moved by half a last place.
  std::uint32_t below = 0;
  std::uint32_t above = 0x7c00;
  const auto compare = [&](std::uint32_t twice, int last_place) {  // sign of quotient - twice * 2^(last_place - 1)
    U128 left = numerator;
    U128 right = denominator * twice;
    const int shift = exponent - (last_place - 1);
    if (shift >= 0) {
      if (left != 0 && bits_of(left) + shift > 127) return 1;
      left <<= shift;
    } else {
      if (right != 0 && bits_of(right) - shift > 127) return -1;
      right <<= -shift;
    }
    return left > right ? 1 : left < right ? -1 : 0;
  };
  while (above - below > 1) {  // the largest half that is not above the quotient
    const std::uint32_t middle = (below + above) / 2;
    const std::uint32_t field = middle >> 10;
    const std::uint32_t mantissa = field == 0 ? middle : (middle & 0x3ffU) | 0x400U;
    const int last_place = (field == 0 ? 1 : static_cast<int>(field)) - 25;
    (compare(2 * mantissa, last_place) >= 0 ? below : above) = middle;
  }
  const std::uint32_t field = below >> 10;
  const std::uint32_t mantissa = field == 0 ? below : (below & 0x3ffU) | 0x400U;
  const int last_place = (field == 0 ? 1 : static_cast<int>(field)) - 25;
  const int half_way = compare(2 * mantissa + 1, last_place);
  const bool up = half_way > 0 || (half_way == 0 && ((below & 1U) != 0 || ties_away));
  return std::min(below + (up ? 1U : 0U), 0x7bffU);
}

struct Fit {
  std::uint64_t dot = 0, norm = 0;
};

inline bool fits_better(const Fit& a, const Fit& b, bool or_as_well) {
  const U128 left = U128{a.dot * a.dot} * b.norm;
  const U128 right = U128{b.dot * b.dot} * a.norm;
  return left > right || (or_as_well && left == right);
}

struct Inverse {
  std::uint64_t factor;
  int shift;
};

}  // namespace rota::ops::reference
