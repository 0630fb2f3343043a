#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "codec/turbo/turbo.h"
#include "ops/seal/seal_arithmetic_reference.h"
#include "rota/codec.h"
#include "rota/dtype.h"
#include "rota_tables/turbo.h"

// docs/page-format.md word for word, in wide integers, one value at a time. Shares only the tables with the kernels.

namespace rota::ops::reference {

// Bits that a code may have, and head sizes.
inline constexpr std::array kWidths{2U, 3U, 4U, 5U, 6U, 8U};
inline constexpr std::array kHeadSizes{16U,  32U,  48U,  64U,  80U,  96U,  112U, 128U, 144U, 160U, 176U,
                                       192U, 208U, 224U, 240U, 256U, 288U, 320U, 352U, 384U, 416U, 448U,
                                       480U, 512U, 576U, 640U, 704U, 768U, 832U, 896U, 960U, 1024U};

inline std::size_t mean_bytes(const PageFormat& format) {
  return format.has_mean() ? (std::size_t{2} * format.head_dim + 63) / 64 * 64 : 0;
}

class Sealer {
 public:
  explicit Sealer(const PageFormat& format, Mutation mutation = Mutation::none)
      : format_(format),
        mutation_(mutation),
        dim_(format.head_dim),
        m_(format.head_dim >> std::countr_zero(std::uint32_t{format.head_dim})),
        k_(static_cast<std::uint32_t>(std::countr_zero(std::uint32_t{format.head_dim}))),
        levels_(codec::levels_of(format.bits())) {}

  // One head's page from f16 values, [token][dim].
  std::vector<std::byte> seal(std::span<const std::uint16_t> values, std::uint64_t sinks = 0) {
    const std::size_t tokens = values.size() / dim_;
    std::vector<std::byte> page(page_bytes(format_));
    std::vector<std::int64_t> mean(dim_);
    const std::size_t first = is(Mutation::mean_counts_sinks) ? 0 : sinks;
    if (format_.has_mean()) {
      std::uint64_t ignored = 0;
      for (std::size_t i = 0; i < dim_; ++i) {
        std::int64_t sum = 0;
        for (std::size_t t = first; t < tokens; ++t) sum += fixed_from_half(values[t * dim_ + i], mutation_, ignored);
        std::uint32_t half = 0;
        if (first < tokens) {
          auto magnitude = static_cast<std::uint64_t>(std::abs(sum));
          if (is(Mutation::mean_rounds_down)) magnitude -= magnitude != 0 ? 1 : 0;
          half = nearest_half(magnitude, tokens - first, -24, is(Mutation::mean_ties_away));
        }
        if (sum < 0 && half != 0) half |= 0x8000U;
        put_half(page, 2 * i, half);
        mean[i] = fixed_from_half(static_cast<std::uint16_t>(half), mutation_, ignored);
      }
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto [scale, codes] = seal_token(values.subspan(t * dim_, dim_), mean);
      put_half(page, mean_bytes(format_) + 2 * t, scale);
      for (std::size_t i = 0; i < dim_; ++i) put_code(page, t, i, codes[i]);
    }
    return page;
  }

  std::uint64_t non_finite() const { return non_finite_; }

  // Without the Hadamard's factor.
  void rotate(std::vector<std::int64_t>& y) const {
    const std::size_t size = std::size_t{1} << k_;
    if (m_ > 1) {
      std::vector<std::int64_t> mixed(dim_);
      for (std::size_t a = 0; a < m_; ++a) {
        for (std::size_t j = 0; j < size; ++j) {
          std::int64_t sum = is(Mutation::hartley_truncates) ? 0 : 1 << 12;
          for (std::size_t b = 0; b < m_; ++b) {
            const std::size_t turn = (a * b + (is(Mutation::hartley_row_off_by_one) ? 1 : 0)) % m_;
            sum += codec::tables::kHartley[m_ / 2 * 15 + turn] * y[b * size + j];
          }
          mixed[a * size + j] = sum >> 13;
        }
      }
      y = mixed;
    }
    std::vector<std::int64_t> sums(dim_);
    for (std::size_t half = 1; half < size; half *= 2) {
      for (std::size_t i = 0; i < dim_; ++i) sums[i] = (i & half) == 0 ? y[i] + y[i + half] : y[i - half] - y[i];
      y = sums;
    }
  }

 private:
  struct Token {
    std::uint32_t scale = 0;
    std::vector<std::uint32_t> codes;
  };

  struct Reduced {
    std::vector<std::uint64_t> z;  // magnitudes
    int r;
  };

  // The magnitudes' squares add up to about root^2 * 4^p.
  struct Length {
    std::uint64_t root;
    int p;
  };

  static constexpr std::size_t kTimesOne = 1;  // of the candidates 0.9, 1 and 1.1

  ScaleRule rule() const { return std::get<Turbo>(format_.codec).scale; }
  bool is(Mutation mutation) const { return mutation_ == mutation; }

  Token seal_token(std::span<const std::uint16_t> halves, const std::vector<std::int64_t>& mean) {
    std::vector<std::int64_t> x(dim_);
    std::vector<std::int64_t> d(dim_);
    std::int64_t sum_x = 0;
    std::int64_t sum_d = 0;
    for (std::size_t i = 0; i < dim_; ++i) {
      x[i] = fixed_from_half(halves[i], mutation_, non_finite_);
      d[i] = x[i] - mean[i];
      sum_x += std::abs(x[i]);
      sum_d += std::abs(d[i]);
    }
    const bool grows = is(Mutation::mean_removed_at_least_as_large) ? sum_d >= sum_x : sum_d > sum_x;
    const bool keeps_mean = format_.has_mean() && grows && !is(Mutation::mean_always_removed);
    if (keeps_mean) d = x;
    const std::uint32_t sign = keeps_mean ? 0x8000 : 0;

    std::int64_t largest = 0;
    for (const std::int64_t value : d) largest = std::max(largest, std::abs(value));
    if (largest == 0) return {.scale = sign, .codes = std::vector<std::uint32_t>(dim_)};
    const int shift = bits_of(static_cast<std::uint64_t>(largest)) - 16;
    std::vector<std::int64_t> y(dim_);
    for (std::size_t i = 0; i < dim_; ++i) {
      const std::int64_t twice = shift <= 0 ? std::abs(d[i]) << (1 - shift) : std::abs(d[i]) >> (shift - 1);
      const std::int64_t limit = is(Mutation::mantissas_reach_65536) ? 65536 : 65535;
      const std::int64_t mantissa = std::min((twice + (is(Mutation::mantissas_truncate) ? 0 : 1)) / 2, limit);
      const bool values_side = (format_.side == KvSide::values) != is(Mutation::signs_of_the_other_side);
      const bool negated =
          codec::is_negated(std::get<Turbo>(format_.codec).seed, values_side ? KvSide::values : KvSide::keys,
                            static_cast<std::uint32_t>(i));
      y[i] = (d[i] < 0) != negated ? -mantissa : mantissa;
    }
    rotate(y);
    Token token = quantize(y, shift);
    token.scale |= sign;
    return token;
  }

  // By magnitude: how many levels lie closer to zero.
  std::uint32_t index_of(std::uint64_t magnitude, Inverse inverse) const {
    const std::uint64_t twice = (magnitude * inverse.factor) >> inverse.shift;
    if (format_.bits() == 8) {
      return static_cast<std::uint32_t>(
          std::min<std::uint64_t>((twice + (is(Mutation::uniform_truncates) ? 0 : 1)) / 2, 127));
    }
    std::uint32_t index = 0;
    const std::size_t half = levels_.size() / 2;
    while (half + index + 1 < levels_.size()) {
      const auto edge = static_cast<std::uint64_t>(levels_[half + index] + levels_[half + index + 1]);
      if (is(Mutation::edge_belongs_below) ? twice <= edge : twice < edge) break;
      ++index;
    }
    return index;
  }

  std::uint64_t level_of(std::uint32_t index) const {
    return format_.bits() == 8 ? index : static_cast<std::uint64_t>(levels_[levels_.size() / 2 + index]);
  }

  Fit fit_of(const std::vector<std::uint64_t>& z, Inverse inverse) const {
    Fit fit;
    for (const std::uint64_t magnitude : z) {
      const std::uint64_t level = level_of(index_of(magnitude, inverse));
      fit.dot += magnitude * level;
      fit.norm += level * level;
    }
    return fit;
  }

  // Step 4.
  Reduced reduce(const std::vector<std::int64_t>& y) const {
    std::int64_t largest = 0;
    for (const std::int64_t value : y) largest = std::max(largest, std::abs(value));
    const int kept = is(Mutation::magnitudes_have_14_bits) ? 14 : 15;
    const int r = std::max(bits_of(static_cast<std::uint64_t>(largest)) - kept, 0);
    const std::int64_t half_way = r == 0 || is(Mutation::magnitudes_truncate) ? 0 : std::int64_t{1} << (r - 1);
    Reduced reduced{.z = {}, .r = r};
    for (const std::int64_t value : y) {
      reduced.z.push_back(static_cast<std::uint64_t>(std::min<std::int64_t>((std::abs(value) + half_way) >> r, 32767)));
    }
    return reduced;
  }

  // Step 5.
  Length length_of(const std::vector<std::uint64_t>& z) const {
    U128 squares = 0;
    for (const std::uint64_t magnitude : z) squares += magnitude * magnitude;
    const int p = (bits_of(squares) - 1) / 2 - 15;
    const auto window = static_cast<std::uint64_t>(p >= 0 ? squares >> (2 * p) : squares << (-2 * p));
    auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<long double>(window)));
    if (is(Mutation::root_is_rounded) && window > root * root + root && root < 65535) ++root;
    return {.root = root, .p = p};
  }

  // Where the tables have G and g of 0.9, 1 and 1.1.
  std::size_t candidates_row() const {
    const std::size_t table = static_cast<std::size_t>(std::ranges::find(codec::tables::kBits, format_.bits()) -
                                                       codec::tables::kBits.begin());
    const std::size_t parity = is(Mutation::parity_of_k_ignored) ? 0 : k_ % 2;
    return ((table * 8 + m_ / 2) * 2 + parity) * 3;
  }

  // Step 7.
  Inverse inverse_of_length(Length length, std::size_t candidate) const {
    const std::size_t at = candidates_row() + candidate;
    const std::uint64_t half = is(Mutation::step_is_rounded) ? length.root / 2 : 0;
    return limited((codec::tables::kInverseMantissas[at] / 2 + half) / length.root,
                   codec::tables::kInverseExponents[at] - 1 - static_cast<int>(k_ / 2) + length.p);
  }

  Inverse inverse_of_largest(const std::vector<std::uint64_t>& z) const {
    const std::uint64_t top = std::ranges::max(z) + (is(Mutation::largest_is_off_by_one) ? 1 : 0);
    const int bits = bits_of(top);
    return limited((std::uint64_t{254} << 22) / (top << (16 - bits)), bits + 6);
  }

  Inverse inverse_of_search(const std::vector<std::uint64_t>& z, Length length) const {
    Inverse chosen = inverse_of_length(length, 0);
    Fit best = fit_of(z, chosen);
    for (std::size_t c = 1; c < (is(Mutation::last_candidate_left_out) ? 2U : 3U); ++c) {
      const Inverse candidate = inverse_of_length(length, c);
      const Fit fit = fit_of(z, candidate);
      if (!fits_better(fit, best, is(Mutation::tie_takes_later_candidate))) continue;
      best = fit;
      chosen = candidate;
    }
    return is(Mutation::no_second_decision) ? chosen : inverse_of_fit(best);
  }

  Inverse chosen_inverse(const std::vector<std::uint64_t>& z, Length length) const {
    if (rule() != ScaleRule::search) return inverse_of_length(length, kTimesOne);
    return format_.bits() == 8 ? inverse_of_largest(z) : inverse_of_search(z, length);
  }

  // Steps 4 to 8.
  Token quantize(const std::vector<std::int64_t>& y, int shift) const {
    const auto [z, r] = reduce(y);
    const Length length = length_of(z);
    const Inverse inverse = chosen_inverse(z, length);
    const int exponent = r + shift - 24 + 4;
    Token token;
    if (rule() == ScaleRule::rms) {
      token.scale = scale_of(length.root, codec::tables::kInverseMantissas[candidates_row() + kTimesOne],
                             exponent + 2 + inverse.shift);
    } else {
      const Fit fit = fit_of(z, inverse);
      token.scale = scale_of(fit.dot, fit.norm, exponent);
    }
    const std::uint32_t half = 1U << (format_.bits() - 1);
    const std::uint32_t lower = format_.bits() == 8 ? half : half - 1;  // 8 bits have a level 0, for both signs
    for (std::size_t i = 0; i < dim_; ++i) {
      const std::uint32_t index = index_of(z[i], inverse);
      const bool positive = z[i] == 0 ? is(Mutation::zero_is_positive) : y[i] > 0;
      token.codes.push_back(positive ? half + index : lower - index);
    }
    return token;
  }

  // 2 * norm / dot: 31 leading bits of the norm by 16 of the dot product.
  Inverse inverse_of_fit(const Fit& fit) const {
    const int dot_bits = bits_of(fit.dot);
    const int norm_bits = bits_of(fit.norm);
    const std::uint64_t dot16 = dot_bits >= 16 ? fit.dot >> (dot_bits - 16) : fit.dot << (16 - dot_bits);
    const std::uint64_t norm31 = fit.norm << (31 - norm_bits);
    const std::uint64_t half = is(Mutation::second_step_is_rounded) ? dot16 / 2 : 0;
    return limited((norm31 + half) / dot16, dot_bits - norm_bits + 14);
  }

  static Inverse limited(std::uint64_t factor, int shift) {
    return shift < 16 ? Inverse{factor >> (16 - shift), 16} : Inverse{factor, std::min(shift, 31)};
  }

  // numerator / denominator * 2^(exponent - k/2), through 31 leading bits of each and a quotient of 13 fraction bits.
  std::uint32_t scale_of(std::uint64_t numerator, std::uint64_t denominator, int exponent) const {
    const auto leading = [&exponent](std::uint64_t value, int sign) {
      const int extra = bits_of(value) - 31;
      exponent += sign * extra;
      return extra >= 0 ? value >> extra : value << -extra;
    };
    const std::uint64_t above = leading(numerator, 1);
    std::uint64_t below = leading(denominator, -1);
    if (k_ % 2 != 0 && !is(Mutation::scale_of_the_root_of_two_ignored)) {
      below = leading(static_cast<std::uint64_t>(U128{2 * below} * 0xb504f334U >> 32), -1);
    }
    exponent -= static_cast<int>(k_ / 2) + 13;
    const std::uint64_t quotient = (above << 13) / below;
    const bool rest = (above << 13) % below != 0 && !is(Mutation::rest_of_scale_ignored);
    return nearest_half(2 * quotient + (rest ? 1 : 0), 2, exponent, is(Mutation::scale_ties_away));
  }

  static void put_half(std::vector<std::byte>& page, std::size_t at, std::uint32_t half) {
    page.at(at) = static_cast<std::byte>(half & 0xff);
    page.at(at + 1) = static_cast<std::byte>(half >> 8);
  }

  void put_code(std::vector<std::byte>& page, std::size_t token, std::size_t dim, std::uint32_t code) const {
    const std::uint32_t bits = format_.bits();
    const std::uint32_t low_bits = bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
    std::size_t plane = mean_bytes(format_) + 2 * format_.tokens + token / 64 * (8 * dim_ * bits);
    const bool swapped = is(Mutation::low_plane_last);
    const auto put = [&](std::uint32_t part, std::uint32_t part_bits) {
      if (part_bits == 0) return;
      const std::size_t per_line = 8 / part_bits;
      std::size_t t = token % 64;
      std::size_t line = 0;
      std::size_t cell = 0;
      std::size_t byte = 0;
      if (format_.side == KvSide::keys) {
        const std::size_t nth = t / 16 * (dim_ / 4) + dim / 4;
        line = nth / per_line;
        cell = nth % per_line;
        byte = is(Mutation::tokens_and_dims_swapped_in_cells) ? dim % 4 * 16 + t % 16 : t % 16 * 4 + dim % 4;
      } else {
        line = t / 4 / per_line * (dim_ / 16) + dim / 16;
        cell = t / 4 % per_line;
        byte = is(Mutation::tokens_and_dims_swapped_in_cells) ? t % 4 * 16 + dim % 16 : dim % 16 * 4 + t % 4;
      }
      page.at(plane + line * 64 + byte) |= static_cast<std::byte>(part << (cell * part_bits));
      plane += 8 * dim_ * part_bits;
    };
    const std::uint32_t low = code & ((1U << low_bits) - 1);
    if (swapped) put(code >> low_bits, bits - low_bits);
    put(low, low_bits);
    if (!swapped) put(code >> low_bits, bits - low_bits);
  }

  PageFormat format_;
  Mutation mutation_;
  std::size_t dim_, m_;
  std::uint32_t k_;
  std::span<const std::int8_t> levels_;
  std::uint64_t non_finite_ = 0;
};

// The other way, in f32 as the document has it: [token][dim].
class Unsealer {
 public:
  explicit Unsealer(const PageFormat& format) : format_(format), dim_(format.head_dim) {}

  // `limit` is the largest number of the target's dtype that f16 holds.
  std::vector<float> unseal(std::span<const std::byte> page, float limit = 65504) const {
    const std::size_t scales = mean_bytes(format_);
    std::vector<float> values;
    for (std::size_t token = 0; token < format_.tokens; ++token) {
      const std::uint16_t scale = half_at(page, scales + 2 * token);
      std::vector<std::int64_t> h(dim_);
      for (std::size_t i = 0; i < dim_; ++i) h[i] = levels()[code_at(page, scales + 2 * format_.tokens, token, i)];
      const float factor = finite(scale & 0x7fff) * rotate(h);
      for (std::size_t i = 0; i < dim_; ++i) {
        const bool negated =
            codec::is_negated(std::get<Turbo>(format_.codec).seed, format_.side, static_cast<std::uint32_t>(i));
        const float product = static_cast<float>(negated ? -h[i] : h[i]) * factor;
        const bool with_mean = format_.has_mean() && (scale & 0x8000) == 0;
        const float value = product + (with_mean ? finite(half_at(page, 2 * i)) : 0.0F);
        values.push_back(std::clamp(value, -limit, limit));
      }
    }
    return values;
  }

  std::uint32_t code_at(std::span<const std::byte> page, std::size_t tiles, std::size_t token, std::size_t dim) const {
    const std::uint32_t bits = format_.bits();
    const std::uint32_t low_bits = bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
    std::size_t plane = tiles + token / 64 * (8 * dim_ * bits);
    std::uint32_t code = 0;
    std::uint32_t first_bit = 0;
    for (const std::uint32_t part_bits : {low_bits, bits - low_bits}) {
      if (part_bits == 0) break;
      const std::size_t per_line = 8 / part_bits;
      const std::size_t t = token % 64;
      const bool keys = format_.side == KvSide::keys;
      const std::size_t nth = t / 16 * (dim_ / 4) + dim / 4;
      const std::size_t line = keys ? nth / per_line : t / 4 / per_line * (dim_ / 16) + dim / 16;
      const std::size_t cell = keys ? nth % per_line : t / 4 % per_line;
      const std::size_t byte = keys ? t % 16 * 4 + dim % 4 : dim % 16 * 4 + t % 4;
      const auto found = std::to_integer<std::uint32_t>(page[plane + line * 64 + byte]) >> (cell * part_bits);
      code |= (found & ((1U << part_bits) - 1)) << first_bit;
      first_bit += part_bits;
      plane += 8 * dim_ * part_bits;
    }
    return code;
  }

  static std::uint16_t half_at(std::span<const std::byte> page, std::size_t at) {
    return static_cast<std::uint16_t>(std::to_integer<unsigned>(page[at]) | std::to_integer<unsigned>(page[at + 1])
                                                                                << 8);
  }

 private:
  static float finite(std::uint16_t half) { return (half & 0x7c00) == 0x7c00 ? 0.0F : f32_from_f16(half); }

  std::span<const std::int8_t> levels() const { return codec::levels_of(format_.bits()); }

  // Returns the unit that the rotated levels are in.
  float rotate(std::vector<std::int64_t>& h) const {
    const auto k = static_cast<unsigned>(std::countr_zero(dim_));
    const std::size_t size = std::size_t{1} << k;
    const std::size_t m = dim_ / size;
    for (std::size_t half = 1; half < size; half *= 2) {
      auto sums = h;
      for (std::size_t i = 0; i < dim_; ++i) sums[i] = (i & half) == 0 ? h[i] + h[i + half] : h[i - half] - h[i];
      h = sums;
    }
    if (m > 1) {
      auto mixed = h;
      for (std::size_t i = 0; i < dim_; ++i) {
        std::int64_t sum = 32;
        for (std::size_t b = 0; b < m; ++b) {
          sum += codec::tables::kHartley[m / 2 * 15 + i / size * b % m] * h[b * size + i % size];
        }
        mixed[i] = sum >> 6;
      }
      h = mixed;
    }
    const float whole = std::ldexp(1.0F, -static_cast<int>(k / 2) - 4 - (m > 1 ? 7 : 0));
    return k % 2 == 0 ? whole : whole * static_cast<float>(std::sqrt(0.5));
  }

  PageFormat format_;
  std::size_t dim_;
};

}  // namespace rota::ops::reference
