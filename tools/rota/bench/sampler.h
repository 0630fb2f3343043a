#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

// Times things that take turns, so that what disturbs the machine disturbs them alike.

namespace rota::tool {

struct Spread {
  double median = 0, least = 0, lower_quarter = 0, upper_quarter = 0;

  double relative() const { return median == 0 ? 0 : (upper_quarter - lower_quarter) / median; }
};

// Precondition: there are values.
Spread spread_of(std::vector<double> values);

// The median of a[i] / b[i].
double median_ratio(std::span<const double> a, std::span<const double> b);

// What takes its turn: does its work so many times, and waits for it.
struct Contender {
  std::function<void(std::uint64_t calls)> run;
  std::uint64_t calls = 1;        // per sample; the sampler finds how many make one long enough
  std::vector<double> seconds{};  // per call, one of each round
};

// Fewer rounds say nothing of how samples spread.
inline constexpr std::uint64_t kFewestRounds = 3;

struct SamplerOptions {
  double seconds = 30;  // to spend, about
  std::uint64_t least_rounds = 5, most_rounds = 41;
  std::function<void(double share, std::string_view what)> show = [](double, std::string_view) {};
  std::function<bool()> stop = [] { return false; };  // asked before each sample
};

// All contenders have a sample of each round: of a round that was stopped, none. Whether it came to its end.
bool sample(std::span<Contender> contenders, const SamplerOptions& options);

// Seconds since some time.
double now();

}  // namespace rota::tool
