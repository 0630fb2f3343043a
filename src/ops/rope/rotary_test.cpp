#include "ops/rope/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "ops/rope/rope_reference.h"

// The table of pairs, beside the definition of their angles.

namespace rota::ops {
namespace {

TEST(RopeTable, HoldsTheFrequenciesOfTheDefinition) {
  std::vector<float> factors;
  for (int p = 0; p < 32; ++p) factors.push_back(0.9F + 0.3F * static_cast<float>(p));
  const Yarn yarn{.factor = 8, .original_context = 4096};
  const Yarn exact{.factor = 32,
                   .original_context = 8192,
                   .beta_fast = 16,
                   .beta_slow = 2,
                   .extrapolation = 0.75,
                   .ramp = YarnRamp::exact};
  const RopeSections turns{
      .pairs = {11, 11, 10}, .order = SectionOrder::interleaved, .frequencies = SectionFrequencies::shared};
  const RopeSections own{.pairs = {20, 12}, .order = SectionOrder::contiguous, .frequencies = SectionFrequencies::own};
  for (const Rotary& rotary : {
           Rotary{.pairing = Pairing::halves, .theta = 1e4},
           Rotary{.pairing = Pairing::halves, .theta = 1e6, .exponent_dim = 256},
           Rotary{.pairing = Pairing::halves, .theta = 1e6, .turning_pairs = 8},
           Rotary{.pairing = Pairing::halves, .theta = 5e5, .factors = factors},
           Rotary{.pairing = Pairing::halves, .theta = 1e4, .interpolation = 8},
           Rotary{.pairing = Pairing::halves, .theta = 1e4, .yarn = yarn},
           Rotary{.pairing = Pairing::halves, .theta = 1e6, .factors = factors, .yarn = exact},
           Rotary{.pairing = Pairing::halves, .theta = 1e7, .sections = turns},
           Rotary{.pairing = Pairing::halves, .theta = 1e4, .sections = own},
       }) {
    const PairTable table = pair_table(rotary, 64).value();
    for (std::uint32_t p = 0; p < 32; ++p) {
      const auto wanted = static_cast<double>(test::frequency_by_definition(rotary, 64, p));
      const std::uint64_t turns_per_position =
          table.column(kTurnsLow)[p] | (std::uint64_t{table.column(kTurnsHigh)[p]} << 32);
      const double radians = std::ldexp(static_cast<double>(turns_per_position), -64) * 2 * std::numbers::pi;
      // The exponent of exp, up to 16, is rounded; so are quotients, the ramp and the turns. Turns are cut at 2^-64.
      EXPECT_NEAR(radians, wanted, 32 * 0x1p-53 * wanted + 0x1p-61);
      EXPECT_EQ(table.column(kAxis)[p], test::axis_by_definition(rotary, p));
    }
  }
}

TEST(RopeTable, MagnitudeIsYarnsWhereNobodySaysOtherwise) {
  const auto magnitude = [](const Rotary& rotary) { return pair_table(rotary, 64).value().magnitude; };
  Rotary rotary{.pairing = Pairing::halves, .theta = 1e4, .interpolation = 4};
  EXPECT_EQ(magnitude(rotary), 1.0F);
  rotary.interpolation = 1;
  rotary.yarn = Yarn{.factor = 4, .original_context = 4096};
  EXPECT_FLOAT_EQ(magnitude(rotary), 1.1386294F);  // 0.1 ln 4 + 1
  rotary.yarn->factor = 0.75;
  EXPECT_EQ(magnitude(rotary), 1.0F);
  rotary.magnitude = 1.5;
  EXPECT_EQ(magnitude(rotary), 1.5F);
}

TEST(RopeTable, GivesEveryAxisItsPairs) {
  const auto axes = [](const std::vector<std::uint32_t>& pairs, SectionOrder order) {
    const Rotary rotary{
        .pairing = Pairing::halves,
        .theta = 1e4,
        .sections = RopeSections{.pairs = pairs, .order = order, .frequencies = SectionFrequencies::shared}};
    const std::uint64_t count = std::accumulate(pairs.begin(), pairs.end(), 0U);
    const PairTable table = pair_table(rotary, 2 * count).value();
    return std::vector<std::uint32_t>(table.column(kAxis), table.column(kAxis) + count);
  };
  EXPECT_EQ(axes({2, 0, 1, 3}, SectionOrder::contiguous), (std::vector<std::uint32_t>{0, 0, 2, 3, 3, 3}));
  EXPECT_EQ(axes({2, 2, 1}, SectionOrder::interleaved), (std::vector<std::uint32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(axes({4, 2, 2}, SectionOrder::interleaved), (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 0, 0}));
  EXPECT_EQ(axes({2, 2, 2, 2}, SectionOrder::interleaved), (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 3, 3}));
}

}  // namespace
}  // namespace rota::ops
