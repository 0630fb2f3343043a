#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string_view>
#include <utility>

#include "distort/captures.h"

namespace rota::tool {
namespace {

// The standard's engine gives the same bits everywhere; its distributions do not.
class Random {
 public:
  float gaussian() { return static_cast<float>(normal()); }
  float laplace() {
    const double uniform = between_0_and_1() - 0.5;
    return static_cast<float>(std::copysign(std::log(1 - 2 * std::abs(uniform)), uniform) / -std::numbers::sqrt2);
  }
  float student_t3() {
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += std::pow(normal(), 2);
    return static_cast<float>(normal() / std::sqrt(squares));  // of variance 3, by the root of 3
  }

 private:
  double between_0_and_1() { return (static_cast<double>(engine_() >> 11U) + 0.5) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(between_0_and_1()));
    return radius * std::cos(2 * std::numbers::pi * between_0_and_1());
  }

  std::mt19937_64 engine_{1};
};

struct Distribution {
  float (Random::*draw)();
  double entropy_power;  // e^(2 h) / (2 pi e), h the entropy in nats at variance 1
};

Distribution distribution_named(std::string_view name) {
  if (name == "laplace") return {&Random::laplace, std::numbers::e / std::numbers::pi};
  if (name == "student_t3") return {&Random::student_t3, 0.6774};
  return {&Random::gaussian, 1};
}

}  // namespace

Source random_source(const std::string& distribution, std::uint64_t dim) {
  constexpr std::uint64_t kHeads = 4, kTokens = 512;
  const Distribution chosen = distribution_named(distribution);
  Source source{.name = distribution,
                .tokens = kTokens,
                .dim = dim,
                .heads = kHeads,
                .softmax_scale = 1 / std::sqrt(static_cast<double>(dim)),
                .entropy_power = chosen.entropy_power};
  Random random;
  const auto numbers = [&](float (Random::*draw)()) {
    std::vector<float> made(kTokens * dim);
    std::ranges::generate(made, [&] { return (random.*draw)(); });
    return made;
  };
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    std::vector<float> queries = numbers(&Random::gaussian), keys = numbers(chosen.draw), values = numbers(chosen.draw);
    source.captures.push_back({.head = {distribution + " " + std::to_string(head), {}, head},
                               .key_name = distribution,
                               .value_name = distribution,
                               .keys = std::move(keys),
                               .values = std::move(values),
                               .queries = std::move(queries)});
  }
  return source;
}

}  // namespace rota::tool
