#include <algorithm>

#include "report/chart.h"
#include "report/drawing.h"
#include "report/words.h"

namespace rota::tool {

std::string svg(const BarChart& chart) {
  constexpr double kPitch = 21, kThickness = 13, kValueRoom = 56;
  constexpr std::size_t kLongestBarName = 22;
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
