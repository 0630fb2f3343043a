#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "cli/characters.h"

namespace rota::tool {
namespace {

// Of the drawing, in its own units: pixels where a chart has its natural width.
constexpr double kWidth = 560, kPlotHeight = 250;
constexpr double kLetter = 6.9;  // of 12 px text, on the wide side: fonts differ
constexpr double kLine = 19;     // a line of text
constexpr double kMarker = 4;
constexpr std::size_t kMarkers = 7, kColours = 8;
constexpr std::size_t kLongestName = 48;
constexpr std::array kDashes{"", "7 3", "2 3", "9 3 2 3", "4 2"};

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<std::uint8_t>(c) & 0xc0U) != 0x80; }));
}

double width_of(std::string_view text) { return kLetter * static_cast<double>(letters(text)); }

std::string with_separators(std::string digits) {
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t begin = digits.starts_with('-') ? 1 : 0;
  for (std::size_t at = point; at > begin + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string without_trailing_zeros(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

std::string power_of_ten(int exponent) {
  constexpr std::array kDigits{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "10";
  for (const char c : std::to_string(exponent)) text += c == '-' ? "⁻" : kDigits.at(static_cast<std::size_t>(c - '0'));
  return text;
}

// A power of ten, times 1, 2 or 5, whose exponent is what it is, however std::log10 rounds.
double nice(int mantissa, int exponent) {
  return exponent < 0 ? mantissa / std::pow(10, -exponent) : mantissa * std::pow(10, exponent);
}

int decade_below(double value) {
  int decade = static_cast<int>(std::floor(std::log10(value)));
  while (nice(1, decade) > value) --decade;
  while (nice(1, decade + 1) <= value) ++decade;
  return decade;
}

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

Interval range_of(Scale scale, double low, double high) {
  if (scale == Scale::logarithmic) {
    const double room = low == high ? 2 : std::max(1.1, std::pow(high / low, 0.04));
    return {low / room, high * room};
  }
  const double room = low == high ? std::max(std::abs(low) * 0.5, 1e-30) : (high - low) * 0.04;
  if (scale == Scale::from_zero) return {0, high > 0 ? high * 1.04 : 1};
  return {low - room, high + room};
}

std::vector<double> ticks_of(const Axis& axis, Interval range, std::size_t most) {
  if (!axis.ticks.empty()) return axis.ticks;
  return axis.scale == Scale::logarithmic ? log_ticks(range.low, range.high, most)
                                          : linear_ticks(range.low, range.high, most);
}

// Powers of ten look alike, or not: all are written the same way.
std::vector<std::string> tick_texts(const Axis& axis, const std::vector<double>& ticks) {
  const bool powers = axis.scale == Scale::logarithmic && axis.ticks.empty() && !ticks.empty() &&
                      (ticks.front() < 1e-3 || ticks.back() > 1e5) &&
                      std::ranges::all_of(ticks, [](double tick) { return nice(1, decade_below(tick)) == tick; });
  std::vector<std::string> texts;
  for (const double tick : ticks) texts.push_back(powers ? power_of_ten(decade_below(tick)) : number_text(tick, 4));
  return texts;
}

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

class Drawing {
 public:
  void line(std::string_view kind, Place from, Place to) {
    add(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", kind, from.x, from.y, to.x, to.y);
  }
  // `anchor` is start, middle or end.
  void text(std::string_view kind, Place at, std::string_view anchor, std::string_view text) {
    add(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", kind, at.x, at.y, anchor,
        escaped(text));
  }
  void upright_text(std::string_view kind, Place at, std::string_view text) {
    add(R"_(<text class="{}" transform="translate({:.1f} {:.1f}) rotate(-90)" text-anchor="middle">{}</text>)_", kind,
        at.x, at.y, escaped(text));
  }
  void bar(std::string_view kind, Place corner, Extent extent) {
    add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", kind, corner.x, corner.y,
        extent.width, extent.height);
  }
  void path(const Style& style, const std::vector<std::pair<double, double>>& places) {
    std::string steps;
    for (const auto& [x, y] : places) steps += fmt::format("{}{:.1f} {:.1f}", steps.empty() ? "M" : " L", x, y);
    const char* const dash = kDashes.at(style.dash % kDashes.size());
    add(R"(<path class="line" d="{}"{}/>)", steps,
        *dash == '\0' ? std::string() : fmt::format(R"( stroke-dasharray="{}")", dash));
  }
  void marker(const Style& style, bool hollow, Place at) {
    const std::string_view kind = hollow ? "mark hollow" : "mark";
    if (style.marker % kMarkers == 0) {
      add(R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>)", kind, at.x, at.y, kMarker);
      return;
    }
    std::string corners;
    for (const auto& [right, down] : corners_of(style.marker % kMarkers)) {
      corners += fmt::format("{:.1f},{:.1f} ", at.x + kMarker * right, at.y + kMarker * down);
    }
    corners.pop_back();
    add(R"(<polygon class="{}" points="{}"/>)", kind, corners);
  }
  void open(const Style& style, const std::string& note = {}) {
    add(R"(<g class="c{}">)", style.colour % kColours);
    if (!note.empty()) add("<title>{}</title>", escaped(note));
  }
  void close() { text_ += "</g>"; }
  void append(const Drawing& other) { text_ += other.text_; }
  template <class... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Parts>(parts)...);
  }

  std::string finished(std::string_view label, double height) const {
    return fmt::format(
        R"(<svg class="chart" role="img" viewBox="0 0 {} {:.0f}" width="{}" height="{:.0f}" aria-label="{}">{}</svg>)",
        kWidth, height, kWidth, height, escaped(label), text_);
  }

 private:
  using Corners = std::vector<std::pair<double, double>>;
  // In units of a circle's radius, of about the circle's area.
  static const Corners& corners_of(std::size_t marker) {
    constexpr double kArm = 0.42;
    static const std::array<Corners, kMarkers> shapes{
        Corners{},
        Corners{{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}},
        Corners{{0, -1.25}, {1.15, 0.85}, {-1.15, 0.85}},
        Corners{{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}},
        Corners{{0, 1.25}, {1.15, -0.85}, {-1.15, -0.85}},
        Corners{{-kArm, -1.3},
                {kArm, -1.3},
                {kArm, -kArm},
                {1.3, -kArm},
                {1.3, kArm},
                {kArm, kArm},
                {kArm, 1.3},
                {-kArm, 1.3},
                {-kArm, kArm},
                {-1.3, kArm},
                {-1.3, -kArm},
                {-kArm, -kArm}},
        Corners{{0, -1.3}, {1.24, -0.4}, {0.76, 1.05}, {-0.76, 1.05}, {-1.24, -0.4}}};
    return shapes.at(marker);
  }

  std::string text_{};
};

void draw_x_axis(Drawing& drawing, const Axis& axis, const Mapping& place, const Frame& frame) {
  const std::vector<double> ticks = ticks_of(axis, {place.low(), place.high()}, 8);
  const std::vector<std::string> texts = tick_texts(axis, ticks);
  double free_from = -kWidth;
  for (std::size_t at = 0; at < ticks.size(); ++at) {
    const double x = place(ticks[at]), half = width_of(texts[at]) / 2;
    drawing.line("grid", {x, frame.top}, {x, frame.bottom});
    drawing.line("axis", {x, frame.bottom}, {x, frame.bottom + 4});
    if (x - half < free_from) continue;
    drawing.text("tick", {x, frame.bottom + 18}, "middle", texts[at]);
    free_from = x + half + 4;
  }
  drawing.text("axis-title", {(frame.left + frame.right) / 2, frame.bottom + 37}, "middle", axis.title);
}

void draw_spread(Drawing& drawing, double x, const Interval& spread, const Mapping& place) {
  const double low = place(spread.low), high = place(spread.high);
  if (std::abs(high - low) < 1) return;
  drawing.line("whisker", {x, low}, {x, high});
  for (const double y : {low, high}) drawing.line("whisker", {x - 3.5, y}, {x + 3.5, y});
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
    std::vector<std::pair<double, double>> places;
    for (const Point& point : series.points) places.emplace_back(x(point.x), y(point.y));
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

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    switch (code) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += may_be_shown(code) ? text.substr(0, bytes) : "\xef\xbf\xbd";
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string cut(std::string_view text, std::size_t most) {
  std::size_t at = 0, count = 0;
  while (at < text.size() && count + 1 < most) {
    at += first_character(text.substr(at)).bytes;
    ++count;
  }
  if (letters(text.substr(at)) <= 1) return std::string(text);
  return std::string(text.substr(0, at)) + "…";
}

std::string number_text(double value, int digits) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e-3 && size < 1e9) {
    const int decimals = std::max(0, digits - 1 - decade_below(size));
    return with_separators(without_trailing_zeros(fmt::format("{:.{}f}", value, decimals)));
  }
  const std::string text = fmt::format("{:.{}e}", value, digits - 1);
  const std::size_t split = text.find('e');
  const std::string mantissa = without_trailing_zeros(text.substr(0, split));
  const std::string power = power_of_ten(std::stoi(text.substr(split + 1)));
  return mantissa == "1" ? power : mantissa + "×" + power;
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

std::string svg(const LineChart& chart) {
  Interval x_data{0, 0}, y_data{0, 0};
  bool any = false;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      const Interval spread = point.spread.value_or(Interval{point.y, point.y});
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
  const std::vector<double> y_ticks = ticks_of(chart.y, y_range, 7);
  const std::vector<std::string> y_texts = tick_texts(chart.y, y_ticks);
  double widest = 0;
  for (const std::string& text : y_texts) widest = std::max(widest, width_of(text));
  const bool named = std::ranges::any_of(chart.series, [](const Series& series) {
    return std::ranges::any_of(series.points, [](const Point& point) { return !point.name.empty(); });
  });
  constexpr double kTop = 16;
  const Frame frame{24 + widest + 8, kWidth - (named ? 56 : 22), kTop, kTop + kPlotHeight};
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
  // Over all lines.
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!point.name.empty()) drawing.text("name", {x(point.x) + 6, y(point.y) - 6}, "start", point.name);
    }
  }
  const double end = draw_legend(drawing, chart.series, frame.left, frame.bottom + 62);
  return drawing.finished(chart.label, end);
}

std::string svg(const BarChart& chart) {
  constexpr double kPitch = 21, kThickness = 13, kValueRoom = 56;
  constexpr std::size_t kLongestBarName = 30;
  double highest = chart.limit ? chart.limit->value : 0, widest = 0;
  std::size_t lines = 0;
  for (const BarGroup& group : chart.groups) {
    lines += group.title.empty() ? 0U : 1U;
    for (const Bar& bar : group.bars) {
      highest = std::max({highest, bar.value, bar.spread ? bar.spread->high : 0});
      widest = std::max(widest, width_of(cut(bar.name, kLongestBarName)));
      ++lines;
    }
  }
  if (lines == 0) return {};
  const double top = chart.limit ? 26 : 8;
  const Frame frame{8 + widest + 8, kWidth - kValueRoom, top, top + kPitch * static_cast<double>(lines) + 6};
  const Axis axis{chart.axis_title, Scale::from_zero};
  const Mapping x(axis.scale, {0, range_of(axis.scale, 0, highest).high}, frame.left, frame.right);

  Drawing drawing, values;  // values lie over the limit's line, bars below it
  draw_x_axis(drawing, axis, x, frame);
  double y = frame.top + 4;
  for (const BarGroup& group : chart.groups) {
    if (!group.title.empty()) {
      values.text("group", {frame.left + 4, y + 14}, "start", group.title);
      y += kPitch;
    }
    for (const Bar& bar : group.bars) {
      const double middle = y + kPitch / 2, end = x(bar.value);
      double text_from = end;
      drawing.open(bar.style, bar.note);
      drawing.text("legend", {frame.left - 7, middle + 4}, "end", cut(bar.name, kLongestBarName));
      drawing.bar(bar.hollow ? "bar hollow" : "bar", {frame.left, middle - kThickness / 2},
                  {end - frame.left, kThickness});
      if (bar.spread && x(bar.spread->high) - x(bar.spread->low) >= 1) {
        const double low = x(bar.spread->low), high = x(bar.spread->high);
        drawing.line("whisker over", {low, middle}, {high, middle});
        for (const double place : {low, high}) drawing.line("whisker over", {place, middle - 4}, {place, middle + 4});
        text_from = std::max(text_from, high);
      }
      drawing.close();
      values.text("value", {text_from + 6, middle + 4}, "start", number_text(bar.value));
      y += kPitch;
    }
  }
  drawing.line("axis", {frame.left, frame.top}, {frame.left, frame.bottom});
  drawing.line("axis", {frame.left, frame.bottom}, {frame.right, frame.bottom});
  if (chart.limit) {
    const double place = x(chart.limit->value);
    drawing.line("limit", {place, frame.top - 6}, {place, frame.bottom});
    // Its name must not leave the drawing on either side.
    const double half = std::min(width_of(chart.limit->name) / 2, kWidth / 2);
    drawing.text("limit-name", {std::clamp(place, half, kWidth - half), frame.top - 11}, "middle", chart.limit->name);
  }
  drawing.append(values);
  return drawing.finished(chart.label, frame.bottom + 46);
}

}  // namespace rota::tool
