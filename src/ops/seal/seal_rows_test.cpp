#include "ops/seal/seal_rows.h"

#include <gtest/gtest.h>

#include "codec/codecs.h"

namespace rota::ops {
namespace {

// Against the table itself, for each of the 256 numbers that twice a magnitude in steps may be.
TEST(LevelCells, HaveTheLevelOfEachMagnitude) {
  for (const std::uint32_t bits : {2U, 3U, 4U, 5U, 6U}) {
    const codec::Table table = codec::table_of(PageFormat{.codec = turbo(bits), .side = KvSide::keys, .head_dim = 64});
    const LevelCells cells(table.data(), bits);
    const std::uint32_t edges = (1U << (bits - 1)) - 1;
    for (std::uint32_t twice = 0; twice <= kMaxTwice; ++twice) {
      std::uint32_t passed = 0;
      while (passed < edges && twice >= table[kEdges + passed]) ++passed;
      const std::size_t cell = twice / LevelCells::kWidth;
      std::uint32_t index = cells.index[cell];
      std::uint32_t level = cells.level[cell];
      for (std::size_t i = 0; i < edges_of_cell(bits); ++i) {
        if (twice <= cells.before_edges[i][cell]) continue;
        ++index;
        level += cells.steps[i][cell];
      }
      ASSERT_EQ(index, passed) << bits << " bits, " << twice;
      ASSERT_EQ(level, table[kMagnitudes + passed]) << bits << " bits, " << twice;
    }
  }
}

}  // namespace
}  // namespace rota::ops
