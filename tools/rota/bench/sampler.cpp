#include "bench/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

namespace rota::tool {
namespace {

constexpr double kSampleSeconds = 0.01;  // a hundred times what waking threads takes
constexpr std::uint64_t kMostCalls = 4096;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

class Progress {
 public:
  Progress(bool shown, double seconds) : shown_(shown), begin_(now()), seconds_(seconds) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:60}\r", "");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::string_view what) const {
    if (!shown_) return;
    constexpr int kCells = 30;
    const double share = std::min(1.0, (now() - begin_) / seconds_);
    const int full = static_cast<int>(share * kCells);
    fmt::print(stderr, "\r[{:#<{}}{:<{}}] {:<24}", "", full, "", kCells - full, what);
    std::fflush(stderr);
  }

 private:
  bool shown_;
  double begin_, seconds_;
};

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {quantile(values, 0.5), values.front(), quantile(values, 0.25), quantile(values, 0.75)};
}

double median_ratio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios(a.size());
  std::ranges::transform(a, b, ratios.begin(), std::divides{});
  return spread_of(std::move(ratios)).median;
}

void sample(std::span<Contender> contenders, const SamplerOptions& options) {
  const double begin = now();
  const Progress progress(options.show_progress, options.seconds);
  for (Contender& contender : contenders) {
    progress.show("warming up");
    contender.run(1);
    const double once = timed(contender, 1);
    contender.calls =
        static_cast<std::uint64_t>(std::clamp(std::ceil(kSampleSeconds / once), 1.0, static_cast<double>(kMostCalls)));
  }
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand random(1);
  for (std::uint64_t round = 0; round < options.most_rounds; ++round) {
    if (round >= options.least_rounds && now() - begin > options.seconds) break;
    std::ranges::shuffle(order, random);
    for (const std::size_t at : order) {
      progress.show(fmt::format("round {}", round + 1));
      Contender& contender = contenders[at];
      contender.seconds.push_back(timed(contender, contender.calls) / static_cast<double>(contender.calls));
    }
  }
}

}  // namespace rota::tool
