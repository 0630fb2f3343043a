#include "report/words.h"

#include <gtest/gtest.h>

#include <string>

// Numbers and names as the page writes them.

namespace rota::tool {
namespace {

TEST(ReportWords, NumbersHaveThreeDigitsThatCount) {
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

TEST(ReportWords, TextIsEscaped) {
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

TEST(ReportWords, LongNamesAreCutBetweenCharacters) {
  EXPECT_EQ(cut("turbo4", 6), "turbo4");
  EXPECT_EQ(cut("turbo42", 6), "turbo…");
  EXPECT_EQ(cut("漢漢漢漢", 3), "漢漢…");
  EXPECT_EQ(cut("", 3), "");
}

TEST(ReportWords, SharesReadAsSentencesDo) {
  EXPECT_EQ(share_of(0.873, "the memory's read speed"), "87% of the memory's read speed");
  EXPECT_EQ(share_of(0.0123, "f16's memory"), "1.2% of f16's memory");
  EXPECT_EQ(share_of(1, "f16's memory"), "f16's memory");
  EXPECT_EQ(share_of(0.996, "f16's memory"), "f16's memory");
  EXPECT_EQ(share_of(1.04, "f16's memory"), "f16's memory");
  EXPECT_EQ(share_of(0.994, "f16's memory"), "99% of f16's memory");
  EXPECT_EQ(share_of(1.24, "f16's memory"), "1.2 times f16's memory");
}

TEST(ReportWords, SpeedsReadAsSentencesDo) {
  EXPECT_EQ(speed_text(2.18, "f16"), "2.2 times as fast as f16");
  EXPECT_EQ(speed_text(1.003, "f16"), "as fast as f16");
  EXPECT_EQ(speed_text(0.997, "f16"), "as fast as f16");
  EXPECT_EQ(speed_text(0.8, "f16"), "at 80% of f16's speed");
}

TEST(ReportWords, OnlyAllIsAHundredPercent) {
  EXPECT_EQ(kept_percent(1), "100%");
  EXPECT_EQ(kept_percent(0.97784), "97.8%");
  EXPECT_EQ(kept_percent(0.9997), "99.97%");
  EXPECT_EQ(kept_percent(0.99996), "99.996%");
  EXPECT_EQ(kept_percent(0), "0%");
}

TEST(ReportWords, OneIsSingular) {
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(16384, "row"), "16,384 rows");
  EXPECT_EQ(bits_text(1), "1 bit");
  EXPECT_EQ(bits_text(4.3125), "4.31 bits");
}

}  // namespace
}  // namespace rota::tool
