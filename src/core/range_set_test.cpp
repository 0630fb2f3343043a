#include "core/range_set.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace rota::core {
namespace {

TEST(RangeSet, AgreesWithABitForEachByte) {
  constexpr std::uint64_t kBytes = 64;
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    RangeSet set;
    std::bitset<kBytes> bytes;
    for (auto added = random() % 12; added > 0; --added) {
      const std::uint64_t begin = random() % kBytes;
      const std::uint64_t end = begin + 1 + random() % std::min<std::uint64_t>(kBytes - begin, 9);
      set.add({begin, end});
      for (std::uint64_t byte = begin; byte < end; ++byte) bytes.set(byte);
    }
    for (std::uint64_t begin = 0; begin < kBytes; ++begin) {
      bool any = false;
      for (std::uint64_t end = begin + 1; end <= kBytes; ++end) {
        any = any || bytes.test(end - 1);
        ASSERT_EQ(set.overlaps({begin, end}), any) << begin << " to " << end;
      }
    }
  }
}

TEST(RangeSet, ReachesTheLastByteThatThereIs) {
  RangeSet set;
  set.add({0, 1});
  set.add({~std::uint64_t{0} - 1, ~std::uint64_t{0}});
  EXPECT_FALSE(set.overlaps({1, ~std::uint64_t{0} - 1}));
  EXPECT_TRUE(set.overlaps({1, ~std::uint64_t{0}}));
}

}  // namespace
}  // namespace rota::core
