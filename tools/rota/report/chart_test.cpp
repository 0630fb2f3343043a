#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/chart.h"

// Ticks, numbers and text of the tool's charts.

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

TEST(ToolChart, NumbersHaveThreeDigitsThatCount) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(1), "1");
  EXPECT_EQ(number_text(0.5), "0.5");
  EXPECT_EQ(number_text(0.012345), "0.0123");
  EXPECT_EQ(number_text(-3.14159), "-3.14");
  EXPECT_EQ(number_text(16384), "16,384");
  EXPECT_EQ(number_text(1048576), "1,048,576");
  EXPECT_EQ(number_text(-123456), "-123,456");
  EXPECT_EQ(number_text(999.9999), "1,000");
  EXPECT_EQ(number_text(1.234e-7), "1.23×10⁻⁷");
  EXPECT_EQ(number_text(1e-12), "10⁻¹²");
  EXPECT_EQ(number_text(2e9), "2×10⁹");
}

TEST(ToolChart, TextIsEscaped) {
  EXPECT_EQ(escaped("<script>alert('1') & \"2\"</script>"),
            "&lt;script&gt;alert(&#39;1&#39;) &amp; &quot;2&quot;&lt;/script&gt;");
  EXPECT_EQ(escaped("µ × 漢 𝄞"), "µ × 漢 𝄞");
  const std::string replaced = "\xef\xbf\xbd";
  for (const char* bad : {"\x01", "\x7f", "\xff", "\xc2\x85", "\xe2\x80\xae", "\xef\xbf\xbf"}) {
    EXPECT_TRUE(escaped(bad).starts_with(replaced)) << bad;
  }
  EXPECT_EQ(escaped("\xc0\xaf"), replaced + replaced) << "an overlong slash";
  EXPECT_EQ(escaped("\xed\xa0\x80"), replaced) << "half of a pair";
  EXPECT_EQ(escaped("\xe2\x82"), replaced + replaced) << "a cut character";
  EXPECT_EQ(escaped(std::string(1, '\0')), replaced);
}

TEST(ToolChart, LongNamesAreCutBetweenCharacters) {
  EXPECT_EQ(cut("turbo4", 6), "turbo4");
  EXPECT_EQ(cut("turbo42", 6), "turbo…");
  EXPECT_EQ(cut("漢漢漢漢", 3), "漢漢…");
  EXPECT_EQ(cut("", 3), "");
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

}  // namespace
}  // namespace rota::tool
