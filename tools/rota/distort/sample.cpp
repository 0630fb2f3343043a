#include "distort/sample.h"

#include <algorithm>
#include <cmath>

namespace rota::tool {
namespace {

// Steele, Lea and Flood's splitmix64: the same numbers everywhere.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15U;
  number = (number ^ number >> 30U) * 0xbf58476d1ce4e5b9U;
  number = (number ^ number >> 27U) * 0x94d049bb133111ebU;
  return number ^ number >> 31U;
}

// Student's t at 97.5 % by its expansion around the normal distribution's; within 2 % from 3 degrees of freedom on, and
// 3 % below at 2, the fewest that are taken.
double student_t(double freedom) {
  constexpr double kZ = 1.959963984540054, kZ3 = kZ * kZ * kZ, kZ5 = kZ3 * kZ * kZ, kZ7 = kZ5 * kZ * kZ;
  const double n = std::max(freedom, 2.0);
  return kZ + (kZ3 + kZ) / (4 * n) + (5 * kZ5 + 16 * kZ3 + 3 * kZ) / (96 * n * n) +
         (3 * kZ7 + 19 * kZ5 + 17 * kZ3 - 15 * kZ) / (384 * n * n * n);
}

}  // namespace

double ratio(double part, double whole) {
  if (whole == 0 && part == 0) return 0;
  return part / whole;
}

std::vector<Sampled> sampled_positions(std::uint64_t first, std::uint64_t end, std::uint64_t count,
                                       std::uint64_t seed) {
  const std::uint64_t all = end - first;
  count = count == 0 ? all : std::min(count, all);
  std::vector<Sampled> positions;
  for (std::uint64_t stratum = 0; stratum < count; ++stratum) {
    // Sizes of strata differ by at most one. `all` is below 2^32: a file of more tokens fits no machine.
    const std::uint64_t begin = stratum * all / count, next = (stratum + 1) * all / count;
    const std::uint64_t place = mixed(mixed(seed) + stratum) % (next - begin);
    positions.push_back({first + begin + place, static_cast<double>(next - begin)});
  }
  return positions;
}

void RatioSums::add(std::span<const Term> terms) {
  for (const Term& term : terms) {
    part_ += term.part;
    whole_ += term.whole;
  }
  const auto add_pair = [this](const Term& one, const Term& other, double times) {
    const double x = one.part - other.part, y = one.whole - other.whole;
    const std::array squares{x * x, x * y, y * y};
    for (std::size_t at = 0; at < squares.size(); ++at) squares_[at] += times * squares[at];
    const std::array fourths{squares[0] * squares[0], squares[0] * squares[1], squares[0] * squares[2],
                             squares[1] * squares[2], squares[2] * squares[2]};
    for (std::size_t at = 0; at < fourths.size(); ++at) fourths_[at] += times * times * fourths[at];
  };
  for (std::size_t at = 0; at + 1 < terms.size(); at += 2) add_pair(terms[at], terms[at + 1], 1);
  // The last of an odd number stands alone: half of what it and its neighbour vary by.
  if (terms.size() % 2 == 1 && terms.size() > 1) add_pair(terms[terms.size() - 2], terms.back(), 0.5);
}

RatioSums& RatioSums::operator+=(const RatioSums& other) {
  part_ += other.part_;
  whole_ += other.whole_;
  for (std::size_t at = 0; at < squares_.size(); ++at) squares_[at] += other.squares_[at];
  for (std::size_t at = 0; at < fourths_.size(); ++at) fourths_[at] += other.fourths_[at];
  return *this;
}

double RatioSums::half_interval(double unseen) const {
  if (unseen <= 0 || whole_ == 0) return 0;
  const double r = value();
  const double variance = std::max(squares_[0] - 2 * r * squares_[1] + r * r * squares_[2], 0.0);
  const double fourth = fourths_[0] - 4 * r * fourths_[1] + 6 * r * r * fourths_[2] - 4 * r * r * r * fourths_[3] +
                        r * r * r * r * fourths_[4];
  const double freedom = fourth > 0 ? variance * variance / fourth : 0;
  return student_t(freedom) * std::sqrt(unseen * variance) / std::abs(whole_);
}

double RatioSums::half_interval_of_root(double unseen) const {
  const double root = std::sqrt(value());
  return root == 0 ? 0 : half_interval(unseen) / (2 * root);
}

}  // namespace rota::tool
