#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Which queries are looked at, and how far a quotient of sums over them may be from that over all.

namespace rota::tool {

// Positions of one query head. Where not all are taken, they are in as many strata of equal size as are taken, one from
// each, at a place that `seed` decides: pages would beat against even steps.
struct Sampled {
  std::uint64_t position;
  double weight;  // how many queries it stands for
};

std::vector<Sampled> sampled_positions(std::uint64_t first, std::uint64_t end, std::uint64_t count, std::uint64_t seed);

double ratio(double part, double whole);  // 0 / 0 is 0

// The sums A of a_i and B of b_i over sampled queries, and what A / B's variance needs. docs/distortion.md derives it.
class RatioSums {
 public:
  struct Term {
    double part, whole;
  };

  // One query head's terms, in the order of their positions, each times its weight.
  void add(std::span<const Term> terms);
  RatioSums& operator+=(const RatioSums& other);

  double value() const { return ratio(part_, whole_); }

  // Half of a 95 % interval around value(), `unseen` the share of queries that were not looked at; and the same for the
  // value's square root.
  double half_interval(double unseen) const;
  double half_interval_of_root(double unseen) const;

 private:
  double part_ = 0, whole_ = 0;
  // Over pairs of neighbouring strata, with differences x of parts and y of wholes: sums of x^2, x y and y^2; and of
  // x^4, x^3 y, x^2 y^2, x y^3 and y^4.
  std::array<double, 3> squares_{};
  std::array<double, 5> fourths_{};
};

}  // namespace rota::tool
