#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/drawing.h"

// Where the names of points stand: beside their point, and where there is no room, apart from it with a line to it.

namespace rota::tool {

struct Label {
  std::string text;
  Place point;                         // what it names
  Place at{};                          // of the text
  std::string_view anchor = "middle";  // of the text: start, middle or end
  bool apart = false;                  // wants a line to its point
  bool shown = true;                   // there was room
};

// The room that a label's text takes.
Frame room_of(const Label& label);

bool overlap(const Frame& a, const Frame& b);

// None covers another, or a mark; all lie within `bounds`. What comes first has the first choice.
std::vector<Label> placed(std::vector<Label> labels, const std::vector<Place>& marks, const Frame& bounds);

void draw_label(Drawing& drawing, const Label& label);

}  // namespace rota::tool
