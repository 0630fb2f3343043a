#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/chart.h"

// Lines of charts whose x is a codec's bits.

namespace rota::tool {

inline constexpr std::size_t kMostSeries = 10, kMostPoints = 400;
// Dense codecs would press all others into a corner.
inline constexpr double kFewBits = 12;

// "turbo" of "turbo4": codecs that differ by their bits only make one line.
std::string family_of(const std::string& codec);

inline std::pair<double, double> place_of(const Point& point) { return {point.x, point.y}; }

// Series by name, in the order in which names come; no more than there is room for.
class SeriesByName {
 public:
  // None if there is no room for one more.
  Series* find(const std::string& name);
  std::vector<Series> sorted() &&;

 private:
  std::map<std::string, std::size_t> index_{};
  std::vector<Series> series_{};
};

}  // namespace rota::tool
