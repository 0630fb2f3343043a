#include "report/ticks.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "report/words.h"

namespace rota::tool {
namespace {

// A power of ten, times 1, 2 or 5, whose exponent is what it is, however std::log10 rounds.
double nice(int mantissa, int exponent) {
  return exponent < 0 ? mantissa / std::pow(10, -exponent) : mantissa * std::pow(10, exponent);
}

// What number_text() makes of a value, at worst.
double as_written(double value, int digits) {
  const double unit = std::pow(10.0, decade_below(std::abs(value)) - digits + 1);
  return std::round(value / unit) * unit;
}

// The least of digits, from 4 on, with which every tick is told from where it is not.
int digits_of(const std::vector<double>& ticks) {
  constexpr int kFewest = 4, kMost = 15;
  for (int digits = kFewest; digits < kMost; ++digits) {
    bool good = true;
    for (std::size_t at = 0; at < ticks.size(); ++at) {
      const double tick = ticks[at];
      if (tick == 0) continue;
      const double step = ticks.size() == 1 ? std::abs(tick) : at == 0 ? ticks[1] - tick : tick - ticks[at - 1];
      good = good && std::abs(as_written(tick, digits) - tick) <= 0.01 * step;
    }
    if (good) return digits;
  }
  return kMost;
}

}  // namespace

int decade_below(double value) {
  int decade = static_cast<int>(std::floor(std::log10(value)));
  while (nice(1, decade) > value) --decade;
  while (nice(1, decade + 1) <= value) ++decade;
  return decade;
}

std::vector<double> linear_ticks(double low, double high, std::size_t most) {
  if (!(low < high) || most == 0) return {low};
  // One step below what would just do, then up to the first that does.
  int decade = decade_below((high - low) / static_cast<double>(most)) - 1;
  for (;; ++decade) {
    for (const int mantissa : {1, 2, 5}) {
      const double step = nice(mantissa, decade);
      const double first = std::ceil(low / step), last = std::floor(high / step);
      if (last - first + 1 > static_cast<double>(most)) continue;
      std::vector<double> ticks;
      for (std::size_t index = 0; index < static_cast<std::size_t>(last - first + 1); ++index) {
        const double at = first + static_cast<double>(index);
        const double tick = decade < 0 ? at * mantissa / std::pow(10, -decade) : at * step;
        ticks.push_back(tick == 0 ? 0 : tick);  // no -0
      }
      return ticks;
    }
  }
}

std::vector<double> log_ticks(double low, double high, std::size_t most) {
  if (!(low < high) || most == 0) return {low};
  const int first = decade_below(low), last = decade_below(high);
  const auto all = [&](std::initializer_list<int> mantissas, int step) {
    std::vector<double> ticks;
    // Every third power of ten is one that three divides.
    int decade = first;
    while (decade % step != 0) --decade;
    for (; decade <= last; decade += step) {
      for (const int mantissa : mantissas) {
        const double tick = nice(mantissa, decade);
        if (tick >= low && tick <= high) ticks.push_back(tick);
      }
    }
    return ticks;
  };
  if (auto ticks = all({1}, 1); ticks.size() < 3) {
    if (auto finer = all({1, 2, 5}, 1); finer.size() > 1 && finer.size() <= most) return finer;
    if (ticks.size() < 2) return linear_ticks(low, high, std::min<std::size_t>(most, 5));
    if (ticks.size() <= most) return ticks;
  }
  for (int step = 1;; ++step) {
    if (auto ticks = all({1}, step); ticks.size() <= most) return ticks;
  }
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  const auto is_power = [](double tick) { return tick > 0 && nice(1, decade_below(tick)) == tick; };
  const bool powers =
      !ticks.empty() && (ticks.front() < 1e-3 || ticks.back() > 1e5) && std::ranges::all_of(ticks, is_power);
  const int digits = digits_of(ticks);
  std::vector<std::string> texts;
  for (const double tick : ticks)
    texts.push_back(powers ? power_of_ten(decade_below(tick)) : number_text(tick, digits));
  return texts;
}

}  // namespace rota::tool
