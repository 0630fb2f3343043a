#include <algorithm>
#include <cmath>
#include <utility>

#include "report/chart.h"
#include "report/drawing.h"
#include "report/labels.h"
#include "report/ticks.h"
#include "report/words.h"

namespace rota::tool {
namespace {

constexpr double kPlotHeight = 190, kTop = 12;
constexpr double kLegendLeft = 22;
constexpr std::size_t kLongestName = 48;
constexpr std::size_t kMostNames = 40;  // of points; more would cover all else

// An end beyond the axis has no stroke across.
void draw_spread(Drawing& drawing, double x, const Interval& spread, const Mapping& place) {
  const Interval seen{std::max(spread.low, place.low()), std::min(spread.high, place.high())};
  const double low = place(seen.low), high = place(seen.high);
  if (std::abs(high - low) < 1) return;
  drawing.line("whisker", {x, low}, {x, high});
  const auto draw_end = [&](double y) { drawing.line("whisker", {x - 3.5, y}, {x + 3.5, y}); };
  if (seen.low == spread.low) draw_end(low);
  if (seen.high == spread.high) draw_end(high);
}

bool has_line(const Series& series) { return series.drawn == Drawn::line || series.drawn == Drawn::line_with_markers; }

bool is_hollow(const Series& series) { return std::ranges::all_of(series.points, &Point::hollow); }

void draw_mark(Drawing& drawing, const Series& series, bool hollow, Place at) {
  if (series.drawn == Drawn::levels) {
    drawing.line("level", {at.x - 2.2 * kMarker, at.y}, {at.x + 2.2 * kMarker, at.y});
  } else {
    drawing.marker(series.style, hollow, at);
  }
}

void draw_series(Drawing& drawing, const Series& series, const Mapping& x, const Mapping& y) {
  drawing.open(series.style);
  if (has_line(series) && series.points.size() > 1) {
    std::vector<Place> places;
    for (const Point& point : series.points) places.push_back({x(point.x), y(point.y)});
    drawing.path(series.style, places);
  }
  for (const Point& point : series.points) {
    const double across = x(point.x), down = y(point.y);
    if (point.spread) draw_spread(drawing, across, *point.spread, y);
    if (series.drawn == Drawn::line) continue;
    drawing.open(series.style, point.note);
    draw_mark(drawing, series, point.hollow, {across, down});
    drawing.close();
  }
  drawing.close();
}

// Returns where it ends.
double draw_legend(Drawing& drawing, const std::vector<Series>& series, double left, double top) {
  constexpr double kSample = 28, kGap = 18;
  double x = left, y = top;
  for (const Series& one : series) {
    const std::string name = cut(one.name, kLongestName);
    const double width = kSample + 6 + width_of(name);
    if (x > left && x + width > kWidth) {
      x = left;
      y += kLine;
    }
    drawing.open(one.style, name == one.name ? std::string() : one.name);
    if (has_line(one)) drawing.path(one.style, {{x, y - 4}, {x + kSample, y - 4}});
    if (one.drawn != Drawn::line) draw_mark(drawing, one, is_hollow(one), {x + kSample / 2, y - 4});
    drawing.text("legend", {x + kSample + 6, y}, "start", name);
    drawing.close();
    x += width + kGap;
  }
  return y + 8;
}

// Over all lines.
void draw_names(Drawing& drawing, const LineChart& chart, const Mapping& x, const Mapping& y, const Frame& frame) {
  std::vector<Label> labels;
  std::vector<Place> marks;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      const Place place{x(point.x), y(point.y)};
      if (series.drawn != Drawn::line) marks.push_back(place);
      if (!point.name.empty() && labels.size() < kMostNames) labels.push_back({point.name, place});
    }
  }
  const Frame bounds{frame.left, kWidth, 0, frame.bottom};
  for (const Label& label : placed(std::move(labels), marks, bounds)) draw_label(drawing, label);
}

}  // namespace

std::string svg(const LineChart& chart) {
  Interval x_data{0, 0}, y_data{0, 0};
  bool any = false;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      const Interval alone{point.y, point.y};
      const Interval spread = chart.spreads_in_range ? point.spread.value_or(alone) : alone;
      if (!std::exchange(any, true)) {
        x_data = {point.x, point.x};
        y_data = spread;
      }
      x_data = {std::min(x_data.low, point.x), std::max(x_data.high, point.x)};
      y_data = {std::min({y_data.low, point.y, spread.low}), std::max({y_data.high, point.y, spread.high})};
    }
  }
  if (!any) return {};
  const Interval y_range = range_of(chart.y.scale, y_data.low, y_data.high);
  const Interval x_range = range_of(chart.x.scale, x_data.low, x_data.high);
  const std::vector<double> y_ticks = ticks_of(chart.y, y_range, 6);
  const std::vector<std::string> y_texts = tick_texts(y_ticks);
  double widest = 0;
  for (const std::string& text : y_texts) widest = std::max(widest, width_of(text));
  const bool named = std::ranges::any_of(chart.series, [](const Series& series) {
    return std::ranges::any_of(series.points, [](const Point& point) { return !point.name.empty(); });
  });
  const Frame frame{22 + widest + 8, kWidth - (named ? 48 : 16), kTop, kTop + kPlotHeight};
  const Mapping x(chart.x.scale, x_range, frame.left, frame.right);
  const Mapping y(chart.y.scale, y_range, frame.bottom, frame.top);

  Drawing drawing;
  for (std::size_t at = 0; at < y_ticks.size(); ++at) {
    const double place = y(y_ticks[at]);
    drawing.line("grid", {frame.left, place}, {frame.right, place});
    drawing.text("tick", {frame.left - 7, place + 4}, "end", y_texts[at]);
  }
  draw_x_axis(drawing, chart.x, x, frame);
  drawing.line("axis", {frame.left, frame.top}, {frame.left, frame.bottom});
  drawing.line("axis", {frame.left, frame.bottom}, {frame.right, frame.bottom});
  drawing.upright_text("axis-title", {14, (frame.top + frame.bottom) / 2}, chart.y.title);
  for (const Series& series : chart.series) draw_series(drawing, series, x, y);
  draw_names(drawing, chart, x, y, frame);
  const double end = draw_legend(drawing, chart.series, kLegendLeft, frame.bottom + 60);
  return drawing.finished(chart.label, end);
}

}  // namespace rota::tool
