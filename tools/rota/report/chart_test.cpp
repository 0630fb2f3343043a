#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "report/chart.h"
#include "report/labels.h"
#include "report/ticks.h"

// Ticks, labels and drawings of the tool's charts.

namespace rota::tool {
namespace {

using Ticks = std::vector<double>;

TEST(ToolChart, LinearTicksAreOneTwoOrFiveTimesAPowerOfTen) {
  EXPECT_EQ(linear_ticks(0, 1, 8), (Ticks{0, 0.2, 0.4, 0.6, 0.8, 1}));
  EXPECT_EQ(linear_ticks(0, 1, 12), (Ticks{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}));
  EXPECT_EQ(linear_ticks(2.1, 8.4, 8), (Ticks{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(linear_ticks(-30, 30, 5), (Ticks{-20, 0, 20}));
  EXPECT_EQ(linear_ticks(1e6, 4e6, 4), (Ticks{1e6, 2e6, 3e6, 4e6}));
  EXPECT_EQ(linear_ticks(0, 1e-20, 3), (Ticks{0, 5e-21, 1e-20}));
}

TEST(ToolChart, LinearTicksNeverAreTooMany) {
  for (const double high : {1e-20, 0.37, 1.0, 9.99, 10.0, 12345.0, 7e20}) {
    for (const std::size_t most : {2U, 3U, 5U, 8U, 20U}) {
      const Ticks ticks = linear_ticks(0, high, most);
      EXPECT_LE(ticks.size(), most) << high;
      // Steps grow by 2.5 at most; so of `most` + 1 places at least a third is used.
      EXPECT_GE(3 * ticks.size(), most) << high;
      EXPECT_LE(ticks.back(), high);
    }
  }
  EXPECT_EQ(linear_ticks(3, 3, 5), (Ticks{3}));
}

TEST(ToolChart, LogTicksArePowersOfTen) {
  EXPECT_EQ(log_ticks(0.5, 2000, 7), (Ticks{1, 10, 100, 1000}));
  EXPECT_EQ(log_ticks(1e-3, 1, 7), (Ticks{1e-3, 1e-2, 1e-1, 1}));
  EXPECT_EQ(log_ticks(0.9, 6, 7), (Ticks{1, 2, 5})) << "too few powers of ten: 2 and 5 times them, too";
  EXPECT_EQ(log_ticks(0.9, 60, 7), (Ticks{1, 2, 5, 10, 20, 50}));
  EXPECT_EQ(log_ticks(3.1, 3.9, 7), (Ticks{3.2, 3.4, 3.6, 3.8})) << "hardly logarithmic any more";
}

TEST(ToolChart, LogTicksOfManyDecadesLeaveSomeOut) {
  EXPECT_EQ(log_ticks(1e-9, 1, 5), (Ticks{1e-8, 1e-6, 1e-4, 1e-2, 1}));
  EXPECT_EQ(log_ticks(1e-9, 1, 4), (Ticks{1e-9, 1e-6, 1e-3, 1}));
  const Ticks ticks = log_ticks(1e-30, 1e30, 7);
  EXPECT_LE(ticks.size(), 7U);
  EXPECT_GE(ticks.size(), 4U);
  EXPECT_EQ(log_ticks(4, 4, 5), (Ticks{4}));
}

TEST(ToolChart, ChartsShowAllTheyAreGiven) {
  const LineChart lines{.label = "a & b",
                        .x = {"keys", Scale::logarithmic},
                        .y = {"time, ms", Scale::logarithmic},
                        .series = {{"one", {1, 0, 0}, Drawn::line_with_markers, {{1, 2, Interval{1, 3}}, {10, 4}}},
                                   {"bound", {0, 0, 1}, Drawn::line, {{1, 1}, {10, 1}}}}};
  const std::string text = svg(lines);
  for (const char* part : {"aria-label=\"a &amp; b\"", ">keys<", ">time, ms<", ">one<", ">bound<", "class=\"whisker\"",
                           "stroke-dasharray", "<circle"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  const BarChart bars{.label = "bars",
                      .axis_title = "times f16",
                      .groups = {{"16,384 keys", {{.name = "turbo4", .value = 3.9}}}},
                      .limit = Limit{1, "as fast as f16"}};
  for (const char* part :
       {">turbo4<", ">3.9<", ">16,384 keys<", ">times f16<", ">as fast as f16<", "class=\"limit\""}) {
    EXPECT_NE(svg(bars).find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg(LineChart{}), "");
  EXPECT_EQ(svg(BarChart{}), "");
}

// No place of a drawing is "nan" or "inf", whatever the numbers.
TEST(ToolChart, NumbersAtTheEdgeOfTheirRangeAreDrawn) {
  for (const double size : {1e-30, 1.0, 1e30}) {
    const LineChart lines{.label = {},
                          .x = {"x", Scale::logarithmic},
                          .y = {"y", Scale::logarithmic},
                          .series = {{"one", {}, Drawn::line_with_markers, {{size, size}, {1, 1e30}}}}};
    const LineChart linear{
        .label = {}, .x = {"x"}, .y = {"y"}, .series = {{"one", {}, Drawn::markers, {{size, -size}}}}};
    const BarChart bars{.label = {}, .axis_title = {}, .groups = {{"", {{.name = "a", .value = size}, {.name = "b"}}}}};
    for (const std::string& text : {svg(lines), svg(linear), svg(bars)}) {
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(text.find("nan"), std::string::npos) << text;
      EXPECT_EQ(text.find("inf"), std::string::npos) << text;
    }
  }
}

// A reader takes a tick's number for where it stands.
TEST(ToolChart, TicksSayTheirValue) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(tick_texts({0, 0.2, 0.4}), (Texts{"0", "0.2", "0.4"}));
  EXPECT_EQ(tick_texts({100.002, 100.004, 100.006}), (Texts{"100.002", "100.004", "100.006"}));
  EXPECT_EQ(tick_texts({1.00001, 1.00002}), (Texts{"1.00001", "1.00002"}));
  EXPECT_EQ(tick_texts({1024, 4096, 16384}), (Texts{"1,024", "4,096", "16,384"}));
  EXPECT_EQ(tick_texts({1e-5, 1e-4, 1e-3, 1e-2}), (Texts{"10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²"}));
  EXPECT_EQ(tick_texts({0.1, 1, 10}), (Texts{"0.1", "1", "10"}));
  for (const auto& [low, high] : {std::pair(3.1, 3.9), {99.99, 100.01}, {0.9, 60.0}, {1e-9, 1.0}, {7e-4, 2e-3}}) {
    const Ticks ticks = log_ticks(low, high, 6);
    const Texts texts = tick_texts(ticks);
    for (std::size_t at = 1; at < texts.size(); ++at) EXPECT_NE(texts[at - 1], texts[at]) << low;
  }
}

// Where a logarithmic axis has its ticks: equal factors are equal distances.
TEST(ToolChart, LogarithmicTicksStandAtTheirValues) {
  const Mapping place(Scale::logarithmic, {0.5, 2000}, 100, 500);
  const Ticks ticks = log_ticks(0.5, 2000, 7);
  ASSERT_EQ(ticks.size(), 4U);
  for (std::size_t at = 1; at < ticks.size(); ++at) {
    EXPECT_NEAR(place(ticks[at]) - place(ticks[at - 1]), 400 / std::log10(4000), 1e-9);
  }
  EXPECT_NEAR(place(2) - place(1), place(2000) - place(1000), 1e-9);
}

TEST(ToolChart, NamesStandBesideTheirPointsOrHaveALineToThem) {
  std::vector<Label> labels;
  std::vector<Place> marks;
  for (int index = 0; index < 12; ++index) {
    const Place place{200 + 3.0 * (index % 4), 100 + 2.0 * index};
    labels.push_back({"turbo" + std::to_string(index), place});
    marks.push_back(place);
  }
  labels.push_back({"at the right edge", {395, 20}});
  marks.push_back({395, 20});
  const Frame bounds{40, 400, 0, 202};
  const std::vector<Label> found = placed(labels, marks, bounds);
  std::size_t apart = 0, shown = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    const Label& label = found[at];
    if (!label.shown) continue;
    ++shown;
    const Frame room = room_of(label);
    EXPECT_TRUE(room.left >= bounds.left && room.right <= bounds.right && room.top >= bounds.top &&
                room.bottom <= bounds.bottom)
        << label.text;
    for (std::size_t other = 0; other < at; ++other) {
      EXPECT_FALSE(found[other].shown && overlap(room, room_of(found[other]))) << label.text;
    }
    for (const Place mark : marks) EXPECT_FALSE(overlap(room, {mark.x - 3, mark.x + 3, mark.y - 3, mark.y + 3}));
    const Frame near{label.point.x - 10, label.point.x + 10, label.point.y - 12, label.point.y + 12};
    EXPECT_EQ(label.apart, !overlap(room, near)) << label.text;
    apart += label.apart ? 1U : 0U;
    Drawing drawing;
    draw_label(drawing, label);
    EXPECT_EQ(drawing.finished("", 0).find("class=\"leader\"") != std::string::npos, label.apart) << label.text;
  }
  EXPECT_GE(apart, 3U) << "12 names do not all fit beside marks that touch each other";
  EXPECT_GE(shown, 9U);
  EXPECT_FALSE(found.back().apart) << "to the left of its point";
}

// One step in a hundred that took ten times as long must not press all lines together.
TEST(ToolChart, SpreadsBeyondAnAxisAreCutOff) {
  LineChart chart{.label = {},
                  .x = {"x"},
                  .y = {"y", Scale::from_zero},
                  .series = {{"one", {}, Drawn::line_with_markers, {{1, 10, Interval{9, 1000}}, {2, 12}}}}};
  const auto count_ends = [&] {
    const std::string text = svg(chart);
    std::size_t found = 0;
    for (std::size_t at = text.find("\"whisker\""); at != std::string::npos; at = text.find("\"whisker\"", at + 1)) {
      ++found;
    }
    return std::pair(found, text.find(">1,000<") != std::string::npos);
  };
  EXPECT_EQ(count_ends(), std::pair(std::size_t{3}, true)) << "a line and two ends";
  chart.spreads_in_range = false;
  EXPECT_EQ(count_ends(), std::pair(std::size_t{2}, false)) << "a line and one end";
}

}  // namespace
}  // namespace rota::tool
