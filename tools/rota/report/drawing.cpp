#include "report/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/characters.h"
#include "report/ticks.h"
#include "report/words.h"

namespace rota::tool {
namespace {

constexpr std::size_t kMarkers = 7, kColours = 8;
constexpr std::array kDashes{"", "7 3", "2 3", "9 3 2 3", "4 2"};

using Corners = std::vector<std::pair<double, double>>;
// In units of a circle's radius, of about the circle's area.
const Corners& corners_of(std::size_t marker) {
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

}  // namespace

double width_of(std::string_view text) { return kLetter * static_cast<double>(length_of(text)); }

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

void Drawing::line(std::string_view kind, Place from, Place to) {
  add(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", kind, from.x, from.y, to.x, to.y);
}

void Drawing::text(std::string_view kind, Place at, std::string_view anchor, std::string_view text) {
  add(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", kind, at.x, at.y, anchor, escaped(text));
}

void Drawing::upright_text(std::string_view kind, Place at, std::string_view text) {
  add(R"_(<text class="{}" transform="translate({:.1f} {:.1f}) rotate(-90)" text-anchor="middle">{}</text>)_", kind,
      at.x, at.y, escaped(text));
}

void Drawing::bar(std::string_view kind, Place corner, Extent extent) {
  add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", kind, corner.x, corner.y,
      extent.width, extent.height);
}

void Drawing::path(const Style& style, const std::vector<Place>& places) {
  std::string steps;
  for (const auto& [x, y] : places) steps += fmt::format("{}{:.1f} {:.1f}", steps.empty() ? "M" : " L", x, y);
  const char* const dash = kDashes.at(style.dash % kDashes.size());
  add(R"(<path class="line" d="{}"{}/>)", steps,
      *dash == '\0' ? std::string() : fmt::format(R"( stroke-dasharray="{}")", dash));
}

void Drawing::marker(const Style& style, bool hollow, Place at) {
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

void Drawing::open(const Style& style, const std::string& note) {
  add(R"(<g class="c{}">)", style.colour % kColours);
  if (!note.empty()) add("<title>{}</title>", escaped(note));
}

std::string Drawing::finished(std::string_view label, double height) const {
  return fmt::format(
      R"(<svg class="chart" role="img" viewBox="0 0 {} {:.0f}" width="{}" height="{:.0f}" aria-label="{}">{}</svg>)",
      kWidth, height, kWidth, height, escaped(label), text_);
}

void draw_x_axis(Drawing& drawing, const Axis& axis, const Mapping& place, const Frame& frame) {
  const std::vector<double> ticks = ticks_of(axis, {place.low(), place.high()}, 7);
  const std::vector<std::string> texts = tick_texts(ticks);
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

}  // namespace rota::tool
