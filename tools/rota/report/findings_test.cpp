#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/distort_findings.h"
#include "report/page.h"

// Every sentence of bench and distort, with one row, two and many, and at ratios of 1.

namespace rota::tool {
namespace {

BenchRow bench_row(const std::string& codec, std::uint64_t keys, double speedup, double fraction = 0) {
  BenchRow row;
  row.op = "attend";
  row.k = row.v = codec;
  row.head_dim = 128;
  row.keys = keys;
  row.median_ms = row.p25_ms = row.p75_ms = 1;
  row.speedup_vs_f16 = speedup;
  if (fraction > 0) row.fraction_of_read = fraction;
  return row;
}

Bench bench_of(std::vector<BenchRow> rows, const std::string& label = "a") {
  Bench file;
  file.origin.label = label;
  file.rows = std::move(rows);
  return file;
}

testing::AssertionResult says(const std::vector<std::string>& findings, const std::string& text) {
  if (std::ranges::count(findings, text) == 1) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "not said once: " << text << "\nbut: " << joined(findings, "\n     ");
}

std::vector<std::string> said(const std::vector<BenchRow>& rows) { return bench_part({bench_of(rows)}).findings; }

// The median of two is between them, that of four between the two in the middle.
TEST(BenchFindings, MediansAreMedians) {
  const auto rows = [](std::vector<double> speeds) {
    std::vector<BenchRow> made;
    for (const double speed : speeds) made.push_back(bench_row("turbo4", 1024 + made.size(), speed));
    return made;
  };
  EXPECT_TRUE(says(said(rows({1.5, 3})),
                   "turbo4 attends 3 times as fast as f16 with 1,025 keys; its 2 rows have 1.5 and "
                   "3 times f16's speed."));
  EXPECT_TRUE(says(said(rows({2, 1.5, 3})),
                   "turbo4 attends 3 times as fast as f16 with 1,026 keys; its 3 rows have 1.5 "
                   "to 3 times f16's speed, median 2."));
  EXPECT_TRUE(says(said(rows({2, 1.5, 8, 3})),
                   "turbo4 attends 3 times as fast as f16 with 1,027 keys; its 4 rows have "
                   "1.5 to 8 times f16's speed, median 2.5."));
  std::vector<BenchRow> two = rows({2, 2});
  two[0].p75_ms = 1.1;
  two[1].p75_ms = 1.3;
  EXPECT_TRUE(says(said(two),
                   "The middle half of a row's samples spans 20% of its median in the typical row, 30% in the "
                   "widest."));
}

TEST(BenchFindings, SpeedsReadWell) {
  EXPECT_TRUE(says(said({bench_row("turbo4", 1024, 1.004)}), "turbo4 attends as fast as f16 with 1,024 keys."));
  EXPECT_TRUE(says(said({bench_row("turbo4", 1, 0.8, 0.995)}),
                   "turbo4 attends at 80% of f16's speed with 1 key and moves bytes at the memory's read speed."));
  EXPECT_TRUE(
      says(said({bench_row("turbo4", 1024, 2, 1.3), bench_row("turbo4", 512, 2)}),
           "turbo4 attends 2 times as fast as f16 with 1,024 keys and moves bytes at 1.3 times the memory's read "
           "speed; all its 2 rows have 2 times f16's speed."));
  std::vector<BenchRow> seal{bench_row("turbo4", 1024, 1.5)};
  seal[0].op = "seal";
  EXPECT_TRUE(says(said(seal), "In seal, turbo4 is 1.5 times as fast as f16 with 1,024 tokens."));
}

TEST(BenchFindings, SlowerRowsAreCounted) {
  const auto slower = [](const std::vector<std::string>& findings) {
    return std::ranges::count_if(findings,
                                 [](const std::string& text) { return text.find("slower") != std::string::npos; });
  };
  EXPECT_EQ(slower(said({bench_row("turbo4", 1024, 0.8)})), 0) << "it is said already";
  EXPECT_EQ(slower(said({bench_row("turbo4", 1024, 0.997), bench_row("turbo8", 1024, 2)})), 0) << "no difference";
  EXPECT_TRUE(says(said({bench_row("turbo4", 1024, 0.8), bench_row("turbo8", 1024, 2)}),
                   "1 of 2 rows of attend is slower than f16: turbo4 at 80% of f16's speed with 1,024 keys."));
  EXPECT_TRUE(
      says(said({bench_row("turbo4", 1024, 0.8), bench_row("turbo8", 1024, 0.5)}),
           "All 2 rows of attend are slower than f16, the slowest turbo8 at 50% of f16's speed with 1,024 keys."));
}

TEST(BenchFindings, FilesAreCompared) {
  const auto compared = [](double first, double second) {
    std::vector<BenchRow> before{bench_row("turbo4", 1024, 2), bench_row("turbo4", 2048, 2)}, after = before;
    after[0].median_ms = after[0].p25_ms = after[0].p75_ms = first;
    after[1].median_ms = after[1].p25_ms = after[1].p75_ms = second;
    if (second == 0) after.pop_back();
    return bench_part({bench_of(before, "a"), bench_of(after, "b")}).findings;
  };
  EXPECT_TRUE(says(compared(1, 1), "b takes the time of a (the same in 2 shared rows)."));
  EXPECT_TRUE(says(compared(0.5, 0.5), "b takes 50% of the time of a (the same in 2 shared rows)."));
  EXPECT_TRUE(says(compared(2, 8), "b takes 4 times the time of a (geometric mean of 2 shared rows; 2 to 8)."));
  EXPECT_TRUE(says(compared(2, 0), "b takes 2 times the time of a (1 shared row)."));
}

// Who gives two files asks how they compare; what both say alike is said once.
TEST(BenchFindings, ComparisonsComeFirst) {
  const std::vector<BenchRow> before{bench_row("turbo4", 1024, 2)};
  std::vector<BenchRow> after{bench_row("turbo4", 1024, 3)};
  after[0].median_ms = after[0].p25_ms = after[0].p75_ms = 0.5;
  const std::vector<std::string> said = bench_part({bench_of(before, "a"), bench_of(after, "b")}).findings;
  EXPECT_EQ(said, (std::vector<std::string>{"b takes 50% of the time of a (1 shared row).",
                                            "a: turbo4 attends 2 times as fast as f16 with 1,024 keys.",
                                            "b: turbo4 attends 3 times as fast as f16 with 1,024 keys.",
                                            "a, b: The middle half of samples spans 0% of the median."}));
}

TEST(BenchFindings, LaterFilesSayLittle) {
  std::vector<BenchRow> rows;
  for (const char* op : {"attend", "seal", "store", "rope"}) {
    rows.push_back(bench_row("turbo4", 1024, 2));
    rows.back().op = op;
  }
  std::vector<BenchRow> after = rows;
  for (BenchRow& row : after) row.speedup_vs_f16 = 3;
  const std::vector<std::string> said = bench_part({bench_of(rows, "a"), bench_of(after, "b")}).findings;
  const auto of = [&](const std::string& label) {
    return std::ranges::count_if(said, [&](const std::string& text) { return text.starts_with(label); });
  };
  EXPECT_EQ(of("a: "), 4);
  EXPECT_EQ(of("b: "), 3);
}

TEST(BenchFindings, NoisyRowsAreMarkedInTheTable) {
  std::vector<BenchRow> rows{bench_row("turbo4", 1024, 2), bench_row("turbo8", 1024, 2)};
  EXPECT_EQ(bench_part({bench_of(rows)}).answer.find("nois"), std::string::npos);
  rows[1].noisy = true;
  const PagePart part = bench_part({bench_of(rows)});
  const std::size_t row = part.answer.find("<td>turbo8</td>"), mark = part.answer.find("noisy</td>");
  EXPECT_LT(row, mark);
  EXPECT_NE(mark, std::string::npos);
  EXPECT_NE(part.charts.front().html.find("Hollow marks and dashed bars are noisy rows."), std::string::npos);
}

TEST(BenchFindings, WarningsNameTheirKindAmongSeveral) {
  std::vector<BenchRow> rows{bench_row("turbo4", 1024, 2), bench_row("turbo8", 1024, 2)};
  rows[1].noisy = true;
  ReportData data;
  data.bench.push_back(bench_of(rows));
  EXPECT_NE(page_of(data, "t").html.find(">1 of 2 rows is noisy"), std::string::npos);
  data.distort.emplace_back().origin.label = "d";
  EXPECT_NE(page_of(data, "t").html.find(">bench: 1 of 2 rows is noisy"), std::string::npos);
  EXPECT_NE(page_of(data, "t").html.find(">distort: d has no rows"), std::string::npos);
}

TEST(BenchFindings, NoiseIsSaidInTheRightNumber) {
  std::vector<BenchRow> rows{bench_row("turbo4", 1024, 2), bench_row("turbo8", 1024, 2)};
  rows[0].noisy = true;
  EXPECT_TRUE(says(bench_part({bench_of(rows)}).warnings, "1 of 2 rows is noisy: its samples differ too much."));
  rows[1].noisy = true;
  EXPECT_TRUE(says(bench_part({bench_of(rows)}).warnings, "2 of 2 rows are noisy: their samples differ too much."));
}

StorageRow storage_row(const std::string& codec, double mse, double theory, double shannon) {
  StorageRow row;
  row.source = "gaussian";
  row.side = "k";
  row.codec = codec;
  row.bits_stored = 4;
  row.mse = mse;
  if (theory > 0) row.theory_mse = theory;
  if (shannon > 0) row.shannon_mse = shannon;
  return row;
}

AttentionRow attention_row(const std::string& source, const std::string& codec, double bits, double error) {
  AttentionRow row;
  row.source = source;
  row.k = row.v = codec;
  row.bits_stored = bits;
  row.output_error = error;
  return row;
}

// Each row is the worst of its own file's sources, whatever other files have.
TEST(DistortFindings, SourcesAreThoseOfTheRow) {
  const auto file = [](const std::vector<std::string>& sources) {
    Distort made;
    made.origin.label = sources.front() + ".json";
    for (const std::string& source : sources) made.attention.push_back(attention_row(source, "turbo4", 4.3, 0.02));
    return made;
  };
  const auto has = [](const std::vector<Distort>& files, const std::string& text) {
    return distort_part(files).answer.find(text) != std::string::npos;
  };
  EXPECT_TRUE(has({file({"gaussian"})}, "values, on gaussian"));
  EXPECT_TRUE(has({file({"gaussian", "laplace"})}, "values, the largest of 2 sources"));
  const std::vector<Distort> apart{file({"gaussian"}), file({"laplace"})};
  EXPECT_FALSE(has(apart, "largest"));
  EXPECT_TRUE(has(apart, "<td>gaussian</td>"));
  EXPECT_TRUE(has(apart, "<td>laplace</td>"));
  const std::vector<Distort> mixed{file({"gaussian", "laplace"}), file({"uniform"})};
  EXPECT_TRUE(has(mixed, "the largest of each file&#39;s sources"));
  EXPECT_TRUE(has(mixed, "<td>2 sources</td>"));
  EXPECT_TRUE(has({file({"gaussian"}), file({"gaussian"})}, "values, on gaussian"));
  EXPECT_EQ(distort_part(apart).charts.front().html.find("recorded"), std::string::npos);
}

TEST(DistortFindings, BitsAboveTheBound) {
  const auto waste = [](std::vector<StorageRow> rows) {
    Distort file;
    file.rows = std::move(rows);
    return distort_findings(file, "");
  };
  EXPECT_TRUE(says(waste({storage_row("turbo4", 0.04, 0, 0.01)}),
                   "On gaussian, turbo4 stores 1 bit per value more than Shannon's bound for its error."));
  EXPECT_TRUE(says(waste({storage_row("turbo4", 0.04, 0, 0.01), storage_row("turbo8", 0.16, 0, 0.01)}),
                   "On gaussian, codecs store 1 to 2 bits per value more than Shannon's bound for their error."));
  EXPECT_TRUE(says(waste({storage_row("turbo4", 0.04, 0, 0.01), storage_row("turbo8", 0.04, 0, 0.01)}),
                   "On gaussian, codecs store 1 bit per value more than Shannon's bound for their error."));
  EXPECT_TRUE(
      says(waste({storage_row("turbo4", 0.04, 0, 0.01), storage_row("turbo8", 0.01, 0, 0.02)}),
           "On gaussian, codecs store from 0.5 bits fewer to 1 bit per value more than Shannon's bound for their "
           "error."));
}

TEST(DistortFindings, DistanceFromTheory) {
  const auto theory = [](double ratio) {
    Distort file;
    file.rows = {storage_row("turbo4", ratio, 1, 0), storage_row("turbo8", 1, 1, 0)};
    return distort_findings(file, "");
  };
  EXPECT_TRUE(says(theory(1), "Errors are those that theory gives, to 0.1%."));
  EXPECT_TRUE(says(theory(0.96), "The error of turbo4 on gaussian is furthest from theory's: 4% below it."));
  EXPECT_TRUE(says(theory(1.5), "The error of turbo4 on gaussian is furthest from theory's: 50% above it."));
}

// What holds on the easiest source alone is not promised for all.
TEST(DistortFindings, FewestBitsHoldOnAllSources) {
  Distort file;
  file.attention = {attention_row("a", "turbo3", 3.3, 0.04), attention_row("a", "turbo4", 4.3, 0.02),
                    attention_row("a", "turbo8", 8.3, 0.001)};
  EXPECT_TRUE(says(distort_findings(file, ""),
                   "turbo3 has the fewest bits that keep attention's output within 5% on a: "
                   "3.3 bits per value, error 4%."));
  file.attention.push_back(attention_row("b", "turbo3", 3.3, 0.2));
  file.attention.push_back(attention_row("b", "turbo4", 4.3, 0.03));
  EXPECT_TRUE(says(distort_findings(file, ""),
                   "turbo4 has the fewest bits that keep attention's output within 5% on all 2 "
                   "sources: 4.3 bits per value, error up to 3%."));
  file.attention = {attention_row("a", "turbo8", 8.3, 0.001)};
  EXPECT_EQ(distort_findings(file, "").size(), 1U) << "within 5% is no news to who reads within 1%";
}

}  // namespace
}  // namespace rota::tool
