#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/chart.h"

// Strokes, marks and text of charts, and where values lie.

namespace rota::tool {

// Of a drawing, in its own units: pixels where a chart has its natural width. A telephone has about as much, so that
// text stays as large as it is.
inline constexpr double kWidth = 400;
inline constexpr double kLetter = 7.1;  // of text, on the wide side: fonts differ
inline constexpr double kLine = 19;     // a line of text
inline constexpr double kMarker = 4;

double width_of(std::string_view text);

// From values to places.
class Mapping {
 public:
  Mapping(Scale scale, Interval values, double from, double to)
      : log_(scale == Scale::logarithmic), low_(values.low), high_(values.high), from_(from), to_(to) {}

  double operator()(double value) const {
    const double part = log_ ? std::log10(value / low_) / std::log10(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + (to_ - from_) * part;
  }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool log_;
  double low_, high_, from_, to_;
};

// What an axis spans: the data, and some room.
Interval range_of(Scale scale, double low, double high);

std::vector<double> ticks_of(const Axis& axis, Interval range, std::size_t most);

struct Place {
  double x, y;
};
struct Extent {
  double width, height;
};

// What axes stand around.
struct Frame {
  double left, right, top, bottom;
};

// The text of an SVG, as it grows.
class Drawing {
 public:
  void line(std::string_view kind, Place from, Place to);
  // `anchor` is start, middle or end.
  void text(std::string_view kind, Place at, std::string_view anchor, std::string_view text);
  void upright_text(std::string_view kind, Place at, std::string_view text);
  void bar(std::string_view kind, Place corner, Extent extent);
  void path(const Style& style, const std::vector<Place>& places);
  void marker(const Style& style, bool hollow, Place at);
  void open(const Style& style, const std::string& note = {});
  void close() { text_ += "</g>"; }
  void append(const Drawing& other) { text_ += other.text_; }

  std::string finished(std::string_view label, double height) const;

 private:
  template <class... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Parts>(parts)...);
  }

  std::string text_{};
};

// Grid, ticks and title below a frame.
void draw_x_axis(Drawing& drawing, const Axis& axis, const Mapping& place, const Frame& frame);

}  // namespace rota::tool
