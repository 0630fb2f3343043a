#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "rota/dtype.h"

namespace rota::test {

// What tests seal. Each kind has something that a codec may stumble over.
enum class PageKind : std::uint8_t {
  gaussian,
  laplace,
  student,       // three degrees of freedom: heavy tails
  spike,         // one value of 70 standard deviations in each token
  constant,      // each token the same value everywhere
  far_mean,      // a mean far larger than what differs, as keys with a bias have
  sink_like,     // the same, and some tokens that are small
  denormal,      // below f16's normal numbers
  huge,          // up to f16's largest numbers
  few_integers,  // many equal values, many ties
  mostly_zero,
  one_value,   // one dim of each token is not zero
  just_below,  // less their mean just below a power of two, in all dims or in one
  all_zero,
  any_bits,  // any number, infinity or NaN
};

inline constexpr std::array kPageKinds{
    PageKind::gaussian,    PageKind::laplace,   PageKind::student,    PageKind::spike,    PageKind::constant,
    PageKind::far_mean,    PageKind::sink_like, PageKind::denormal,   PageKind::huge,     PageKind::few_integers,
    PageKind::mostly_zero, PageKind::one_value, PageKind::just_below, PageKind::all_zero, PageKind::any_bits};

// f16 bits, [token][dim].
inline std::vector<std::uint16_t> draw_page(std::mt19937_64& random, PageKind kind, std::uint64_t tokens,
                                            std::uint64_t dim) {
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> student(3);
  std::exponential_distribution<double> exponential;
  const double unit = std::exp2(static_cast<double>(random() % 20) - 12);
  std::vector<double> mean(dim);
  for (double& value : mean) value = normal(random) * 20;
  const bool one_dim = random() % 2 == 0;
  const std::uint64_t of_page = random() % dim;
  const auto draw = [&](std::uint64_t token, std::uint64_t d, double of_token, std::uint64_t chosen) -> double {
    switch (kind) {
      case PageKind::laplace: return exponential(random) * (random() % 2 == 0 ? 1 : -1) * unit;
      case PageKind::student: return student(random) * unit;
      case PageKind::spike: return (d == chosen ? 70 : normal(random)) * unit;
      case PageKind::constant: return of_token * unit;
      case PageKind::far_mean: return mean[d] + normal(random);
      case PageKind::sink_like: return token % 9 == 1 ? normal(random) : mean[d] + normal(random);
      case PageKind::denormal: return normal(random) * 0x1p-22;
      case PageKind::huge: return std::clamp(normal(random) * 60000, -65504.0, 65504.0);
      case PageKind::few_integers: return static_cast<double>(random() % 7) - 3;
      case PageKind::mostly_zero: return random() % 16 == 0 ? normal(random) * unit : 0;
      case PageKind::one_value: return d == chosen ? of_token * unit : 0;
      case PageKind::just_below: {
        const double sign = mean[d] < 0 ? -1 : 1;
        if (one_dim && d != of_page) return 0;
        return token == tokens - 1 ? sign * 0x1p-14 : token % 2 == 0 ? sign : -sign;
      }
      case PageKind::all_zero: return d % 2 == 0 ? 0.0 : -0.0;
      default: return normal(random) * unit;
    }
  };
  std::vector<std::uint16_t> page;
  page.reserve(tokens * dim);
  for (std::uint64_t token = 0; token < tokens; ++token) {
    const double of_token = normal(random);
    const std::uint64_t chosen = random() % dim;
    for (std::uint64_t d = 0; d < dim; ++d) {
      page.push_back(kind == PageKind::any_bits ? static_cast<std::uint16_t>(random())
                                                : f16_from_f32(static_cast<float>(draw(token, d, of_token, chosen))));
    }
  }
  return page;
}

}  // namespace rota::test
