#include "report/labels.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rota::tool {
namespace {

constexpr double kAscent = 9, kDescent = 3;  // of a label's text

struct Direction {
  double right, down;
  std::string_view anchor;
};
// Those that read best come first. Beside a point, and then apart from it.
constexpr std::array kBeside{Direction{6, -6, "start"},  Direction{7, 4, "start"},   Direction{6, 14, "start"},
                             Direction{0, -9, "middle"}, Direction{0, 18, "middle"}, Direction{-6, -6, "end"},
                             Direction{-7, 4, "end"},    Direction{-6, 14, "end"}};
constexpr std::array kApart{Direction{1, -0.6, "start"}, Direction{1, 0.6, "start"}, Direction{-1, -0.6, "end"},
                            Direction{-1, 0.6, "end"},   Direction{0, -1, "middle"}, Direction{0, 1, "middle"}};
constexpr std::array kDistances{18.0, 28.0, 40.0, 54.0, 70.0};

Frame room_of_mark(Place mark) { return {mark.x - kMarker, mark.x + kMarker, mark.y - kMarker, mark.y + kMarker}; }

}  // namespace

Frame room_of(const Label& label) {
  const double width = width_of(label.text);
  const double left = label.anchor == "start" ? label.at.x
                      : label.anchor == "end" ? label.at.x - width
                                              : label.at.x - width / 2;
  return {left, left + width, label.at.y - kAscent, label.at.y + kDescent};
}

bool overlap(const Frame& a, const Frame& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

std::vector<Label> placed(std::vector<Label> labels, const std::vector<Place>& marks, const Frame& bounds) {
  std::vector<Frame> taken;
  for (const Place mark : marks) taken.push_back(room_of_mark(mark));
  for (Label& label : labels) {
    const auto fits = [&](Place at, std::string_view anchor, bool apart) {
      label.at = at;
      label.anchor = anchor;
      label.apart = apart;
      const Frame room = room_of(label);
      return room.left >= bounds.left && room.right <= bounds.right && room.top >= bounds.top &&
             room.bottom <= bounds.bottom &&
             std::ranges::none_of(taken, [&](const Frame& other) { return overlap(room, other); });
    };
    const double x = label.point.x, y = label.point.y;
    label.shown = std::ranges::any_of(
        kBeside, [&](const auto& way) { return fits({x + way.right, y + way.down}, way.anchor, false); });
    for (const double distance : kDistances) {
      label.shown = label.shown || std::ranges::any_of(kApart, [&](const auto& way) {
                      return fits({x + distance * way.right, y + distance * way.down + 4}, way.anchor, true);
                    });
    }
    if (label.shown) taken.push_back(room_of(label));
  }
  return labels;
}

void draw_label(Drawing& drawing, const Label& label) {
  if (!label.shown) return;
  if (label.apart) {
    const Frame room = room_of(label);
    const Place end{std::clamp(label.point.x, room.left, room.right), std::clamp(label.point.y, room.top, room.bottom)};
    drawing.line("leader", label.point, end);
  }
  drawing.text("name", label.at, label.anchor, label.text);
}

}  // namespace rota::tool
