#include "bench/measured.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using namespace rota::tool;

Measured layers_of(const std::string& codec, std::uint64_t layers, std::uint64_t head_dim, std::uint64_t bytes,
                   std::vector<double> seconds) {
  return {.row = {.op = "attend",
                  .k = codec,
                  .v = codec,
                  .model = "two kinds",
                  .keys = 256,
                  .head_dim = head_dim,
                  .kv_heads = 2,
                  .layers = layers,
                  .rows = 3,
                  .sequences = 2,
                  .calls_per_sample = 7},
          .seconds = std::move(seconds),
          .bytes = bytes};
}

// Medians of rounds: a sum of medians would be 3 * 2 + 5 * 20 of f16, and not 3 * 9 + 5 * 10.
const std::vector<Measured> kLayers{layers_of("f16", 3, 64, 100, {1, 2, 9}), layers_of("turbo4", 3, 64, 30, {1, 1, 1}),
                                    layers_of("f16", 5, 128, 1000, {30, 20, 10}),
                                    layers_of("turbo4", 5, 128, 300, {4, 4, 4})};

TEST(Measured, AllLayersOfAModelAreSummedUpRoundByRound) {
  const std::vector<Measured> sums = sums_of_layers(kLayers);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].row.k, "f16");
  EXPECT_EQ(sums[0].seconds, (std::vector<double>{3 * 1 + 5 * 30, 3 * 2 + 5 * 20, 3 * 9 + 5 * 10}));
  EXPECT_EQ(sums[0].bytes, 3U * 100 + 5 * 1000);
  EXPECT_EQ(sums[0].row.scope, "model");
  EXPECT_EQ(sums[0].row.layers, 8U);
  EXPECT_EQ(sums[0].row.kv_heads, 2U) << "the same in all layers";
  EXPECT_FALSE(sums[0].row.head_dim.has_value()) << "64 and 128";
  EXPECT_FALSE(sums[0].row.calls_per_sample.has_value());
  EXPECT_EQ(sums[1].seconds, (std::vector<double>{23, 23, 23}));
}

TEST(Measured, WhatIsAskedForTwiceIsNotSummedUpTwice) {
  std::vector<Measured> twice = kLayers;
  twice.insert(twice.end(), kLayers.begin(), kLayers.end());
  const std::vector<Measured> sums = sums_of_layers(twice);
  ASSERT_EQ(sums.size(), 4U);
  EXPECT_EQ(sums[2].seconds, sums[0].seconds);
  EXPECT_EQ(sums[2].row.layers, 8U);
}

TEST(Measured, RowsCompareLayersWithLayersAndModelsWithModels) {
  std::vector<Measured> all = kLayers;
  for (const Measured& sum : sums_of_layers(kLayers)) all.push_back(sum);
  const std::vector<MeasuredRead> reads{{{0.5, 1, 2}, 50}};
  const std::vector<BenchRow> rows = rows_of(all, reads);
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(rows[1].speedup_vs_f16, 2) << "of 1, 2 and 9 by 1";
  EXPECT_EQ(rows[3].speedup_vs_f16, 5) << "of 30, 20 and 10 by 4";
  EXPECT_DOUBLE_EQ(rows[5].speedup_vs_f16.value_or(0), 106.0 / 23);
  EXPECT_EQ(rows[4].speedup_vs_f16, 1);
  EXPECT_DOUBLE_EQ(rows[4].median_ms, 106e3);
  EXPECT_DOUBLE_EQ(rows[4].gbps.value_or(0), 5300 / 106.0 * 1e-9);
  EXPECT_DOUBLE_EQ(rows[5].fraction_of_read.value_or(0), 1.0 / 23 * (3 * 30 + 5 * 300) / 50);
  EXPECT_DOUBLE_EQ(rows[5].tokens_per_second.value_or(0), 3 * 2 / 23.0);
  EXPECT_FALSE(rows[3].tokens_per_second.has_value()) << "of one layer";
}

}  // namespace
