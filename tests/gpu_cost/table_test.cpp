#include "gpu_cost/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rota::test {
namespace {

Table table_with(double instructions) {
  return {.labels = {"kernel", "call"},
          .columns = {{"VGPRs"}, {"instructions"}, {"a byte", 1}},
          .rows = {{{"seal", "from f16"}, {0, instructions, 2.5}}}};
}

TEST(CostTable, IsReadAsItWasWritten) {
  Table table = table_with(1234);
  table.rows.push_back({{"store", "f16 to f16, odd offset"}, {24, 128, 0}});
  const std::string document = "Before.\n<!-- one -->\nold\n<!-- end -->\n<!-- two -->\nkept\n<!-- end -->\n";
  const std::string written = with_section(document, "one", "Words.\n\n" + text_of(table));
  EXPECT_EQ(rows_of(table, section_of(written, "one")), table.rows);
  EXPECT_EQ(section_of(written, "two"), "kept\n");
  EXPECT_TRUE(written.starts_with("Before.\n<!-- one -->\nWords.\n"));
}

TEST(CostTable, ThatIsMissingOrDamagedIsAnError) {
  EXPECT_THROW(section_of("<!-- one -->\n", "one"), std::runtime_error);
  EXPECT_THROW(section_of("<!-- end -->\n", "one"), std::runtime_error);
  const Table sound = table_with(1234);
  const std::string table = text_of(sound);
  for (const std::string_view damage : {"12.4", "", "1234 | 5", "x"}) {
    std::string damaged = table;
    damaged.replace(damaged.find("1234"), 4, damage);
    EXPECT_THROW(rows_of(sound, damaged), std::runtime_error) << damaged;
  }
}

TEST(CostTable, ToleratesAFewPerCentUpAndDown) {
  const auto compared = [](double accepted, double measured) {
    return differences(table_with(accepted).rows, table_with(measured));
  };
  EXPECT_TRUE(compared(1000, 1030).empty());
  EXPECT_TRUE(compared(1000, 970).empty());
  EXPECT_TRUE(compared(1000, 1030.4).empty());  // as it is written
  for (const int instructions : {1031, 969, 0}) {
    const auto found = compared(1000, instructions);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0], "seal (from f16), instructions: " + std::to_string(instructions) + "; the table has 1000");
  }
  EXPECT_EQ(compared(0, 1).size(), 1U);
}

TEST(CostTable, HasTheRowsThatAreMeasuredAndNoOthers) {
  Table none = table_with(1);
  none.rows.clear();
  EXPECT_EQ(differences({}, table_with(1)), std::vector<std::string>{"seal (from f16): is not in the table"});
  EXPECT_EQ(differences(table_with(1).rows, none),
            std::vector<std::string>{"seal (from f16): is in the table, and no call runs it"});
}

}  // namespace
}  // namespace rota::test
