#include "bench/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

namespace rota::tool {
namespace {

constexpr double kSampleSeconds = 0.01;  // a hundred times what waking threads takes
constexpr std::uint64_t kMostCalls = 4096;

double timed(const Contender& contender, std::uint64_t calls) {
  const double begin = now();
  contender.run(calls);
  return now() - begin;
}

// Between the two values that are nearest.
double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

class Sampler {
 public:
  Sampler(std::span<Contender> contenders, const SamplerOptions& options)
      : contenders_(contenders), options_(options), order_(contenders.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  bool run() {
    if (!warm_up()) return false;
    for (std::uint64_t round = 0; round < options_.most_rounds; ++round) {
      const double before = spent();
      if (round >= options_.least_rounds && before + last_round_ > options_.seconds) break;
      if (!run_round(round)) {
        for (Contender& contender : contenders_) contender.seconds.resize(round);
        return false;
      }
      last_round_ = spent() - before;
    }
    return true;
  }

 private:
  static constexpr double kWarmUp = 0.1;  // of the bar

  double spent() const { return now() - begin_; }

  // False if it was stopped.
  bool warm_up() {
    for (std::size_t at = 0; at < contenders_.size(); ++at) {
      if (options_.stop()) return false;
      options_.show(kWarmUp * static_cast<double>(at) / static_cast<double>(contenders_.size()), "warming up");
      Contender& contender = contenders_[at];
      contender.run(1);
      const double once = timed(contender, 1);
      contender.calls = static_cast<std::uint64_t>(
          std::clamp(std::ceil(kSampleSeconds / once), 1.0, static_cast<double>(kMostCalls)));
    }
    return true;
  }

  bool run_round(std::uint64_t round) {
    std::ranges::shuffle(order_, random_);
    for (std::size_t turn = 0; turn < order_.size(); ++turn) {
      if (options_.stop()) return false;
      const double rounds = static_cast<double>(round) + static_cast<double>(turn) / static_cast<double>(order_.size());
      options_.show(share_after(rounds), fmt::format("round {}", round + 1));
      Contender& contender = contenders_[order_[turn]];
      contender.seconds.push_back(timed(contender, contender.calls) / static_cast<double>(contender.calls));
    }
    return true;
  }

  // It ends with the last round, or when the time is over and there were enough of them.
  double share_after(double rounds) const {
    const double of_least = rounds / static_cast<double>(options_.least_rounds);
    const double of_most = rounds / static_cast<double>(options_.most_rounds);
    const double of_time = options_.seconds <= 0 ? 1 : spent() / options_.seconds;
    return kWarmUp + (1 - kWarmUp) * std::max(of_most, std::min(of_least, of_time));
  }

  std::span<Contender> contenders_;
  const SamplerOptions& options_;
  std::vector<std::size_t> order_;
  std::minstd_rand random_{1};
  double begin_ = now(), last_round_ = 0;
};

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {quantile(values, 0.5), values.front(), quantile(values, 0.25), quantile(values, 0.75)};
}

double median_ratio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios(a.size());
  std::ranges::transform(a, b, ratios.begin(), std::divides{});
  return spread_of(std::move(ratios)).median;
}

bool sample(std::span<Contender> contenders, const SamplerOptions& options) {
  return Sampler(contenders, options).run();
}

}  // namespace rota::tool
