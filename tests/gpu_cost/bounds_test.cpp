#include "gpu_cost/bounds.h"

#include <gtest/gtest.h>

namespace rota::test {
namespace {

std::vector<std::string> broken_by(const std::string& call, double waits) {
  const auto row = [](const std::string& kernel, const std::string& label, double figure) {
    return Row{{kernel, label}, {figure}};
  };
  const Table table{.labels = {"kernel", "call"},
                    .columns = {{std::string(kWaits)}},
                    .rows = {row("attend_split", "f16, D=128, G=4", 1), row("attend_split", "turbo:4, D=128, G=4", 1),
                             row("attend_merge", "turbo:4, D=128, G=1", 1), row("attend_split", call, waits)}};
  return broken_bounds({table});
}

TEST(Bounds, AreKeptWhateverTheTablesAccept) {
  EXPECT_TRUE(broken_by("turbo:3, D=128, G=4", 12).empty());
  ASSERT_EQ(broken_by("turbo:3, D=128, G=4", 1e4).size(), 1U);
  EXPECT_TRUE(
      broken_by("turbo:3, D=128, G=4", 1e4)[0].starts_with("attend_split (turbo:3, D=128, G=4), waits: 10000.0"));
  EXPECT_TRUE(broken_by("turbo:3, D=512, G=4", 1e4).empty());  // is for D = 128
}

TEST(Bounds, MustHaveRows) {
  const Table none{.labels = {"kernel", "call"}, .columns = {{std::string(kWaits)}}};
  EXPECT_EQ(broken_bounds({none}).size(), 3U);
}

}  // namespace
}  // namespace rota::test
