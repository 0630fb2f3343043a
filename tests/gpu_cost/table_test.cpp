#include "gpu_cost/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rota::test {
namespace {

// Instructions are the figure that tests change.
constexpr std::size_t kInstructions = 6;

std::vector<Row> rows_with(std::uint64_t instructions) {
  Row row{"seal", "from f16", {}};
  row.cost[kInstructions] = instructions;
  return {row};
}

TEST(CostTable, IsReadAsItWasWritten) {
  std::vector<Row> rows = rows_with(1234);
  rows.push_back({"store", "f16 to f16, odd offset", {24, 128}});
  const std::string document = "Before.\n<!-- one -->\nold\n<!-- end -->\n<!-- two -->\nkept\n<!-- end -->\n";
  const std::string written = with_section(document, "one", "Words.\n\n" + text_of(rows));
  EXPECT_EQ(rows_of(section_of(written, "one")), rows);
  EXPECT_EQ(section_of(written, "two"), "kept\n");
  EXPECT_TRUE(written.starts_with("Before.\n<!-- one -->\nWords.\n"));
}

TEST(CostTable, ThatIsMissingOrDamagedIsAnError) {
  EXPECT_THROW(section_of("<!-- one -->\n", "one"), std::runtime_error);
  EXPECT_THROW(section_of("<!-- end -->\n", "one"), std::runtime_error);
  const std::string table = text_of(rows_with(1234));
  for (const std::string_view damage : {"12.4", "", "1234 | 5", "x"}) {
    std::string damaged = table;
    damaged.replace(damaged.find("1234"), 4, damage);
    EXPECT_THROW(rows_of(damaged), std::runtime_error) << damaged;
  }
}

TEST(CostTable, ToleratesAFewPerCentUpAndDown) {
  EXPECT_TRUE(differences(rows_with(1000), rows_with(1030)).empty());
  EXPECT_TRUE(differences(rows_with(1000), rows_with(970)).empty());
  for (const std::uint64_t instructions : {1031U, 969U, 0U}) {
    const auto found = differences(rows_with(1000), rows_with(instructions));
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0], "seal (from f16), instructions: " + std::to_string(instructions) + "; the table has 1000");
  }
  EXPECT_EQ(differences(rows_with(0), rows_with(1)).size(), 1U);
}

TEST(CostTable, HasTheRowsThatAreMeasuredAndNoOthers) {
  const std::vector<Row> rows = rows_with(1);
  EXPECT_EQ(differences({}, rows), std::vector<std::string>{"seal (from f16): is not in the table"});
  EXPECT_EQ(differences(rows, {}), std::vector<std::string>{"seal (from f16): is in the table, and no call runs it"});
}

}  // namespace
}  // namespace rota::test
