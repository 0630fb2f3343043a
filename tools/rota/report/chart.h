#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Charts as SVG text. Colours are the page's: classes c0 to c7 of series, and those of axes, grid and limits.

namespace rota::tool {

// Text as XML and HTML hold it, in elements and in attributes. What they must not hold becomes U+FFFD.
std::string escaped(std::string_view text);

// No longer than `most` characters; what is cut ends in "…".
std::string cut(std::string_view text, std::size_t most);

// "0.0123", "16,384", "1.2×10⁻⁷": whole parts in full, else `digits` that count.
std::string number_text(double value, int digits = 3);

// Multiples of 1, 2 or 5 times a power of ten in [low, high], at most `most` of them, and 2 at least where they fit.
std::vector<double> linear_ticks(double low, double high, std::size_t most);

// Powers of ten in [low, high]; every second, third, ... where they are too many, and 2 and 5 times them where too few.
std::vector<double> log_ticks(double low, double high, std::size_t most);

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
