#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

// Charts as SVG text. Colours are the page's: classes c0 to c7 of series, and those of axes, grid and limits.

namespace rota::tool {

enum class Scale { linear, from_zero, logarithmic };

struct Axis {
  std::string title;  // with its unit
  Scale scale = Scale::linear;
  std::vector<double> ticks{};  // where the data has few values of its own; else found
};

// Each counts on beyond what there is, and begins anew.
struct Style {
  std::size_t colour = 0, marker = 0, dash = 0;
};

struct Interval {
  double low, high;
};

struct Point {
  double x, y;
  std::optional<Interval> spread{};
  std::string name{};   // drawn beside it
  std::string note{};   // shown by a mouse over it
  bool hollow = false;  // not to be relied on
};

enum class Drawn { line_with_markers, markers, line, levels };  // levels: a short stroke across each point

struct Series {
  std::string name;
  Style style{};
  Drawn drawn = Drawn::line_with_markers;
  std::vector<Point> points{};
};

struct Limit {
  double value;
  std::string name;
};

// Numbers are finite, and positive on logarithmic axes.
struct LineChart {
  std::string label;  // what it shows, for those who cannot see it
  Axis x, y;
  std::vector<Series> series{};
  bool spreads_in_range = true;  // else an axis spans the points, and what a spread has beyond it is cut off
};

struct Bar {
  std::string name;
  Style style{};
  double value = 0;
  std::optional<Interval> spread{};
  std::string note{};
  bool hollow = false;
};

struct BarGroup {
  std::string title;
  std::vector<Bar> bars{};
};

// Bars lie, one below the other, from zero.
struct BarChart {
  std::string label;
  std::string axis_title;
  std::vector<BarGroup> groups{};
  std::optional<Limit> limit{};
};

std::string svg(const LineChart& chart);
std::string svg(const BarChart& chart);

}  // namespace rota::tool
