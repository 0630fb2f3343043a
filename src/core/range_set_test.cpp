#include "core/range_set.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace rota::core {
namespace {

TEST(RangeSet, AgreesWithABitForEachByte) {
  constexpr std::uint64_t kBytes = 256;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    RangeSet set;
    std::bitset<kBytes> bytes;
    for (auto added = random() % 80; added > 0; --added) {
      const std::uint64_t begin = random() % kBytes;
      const std::uint64_t end = begin + 1 + random() % std::min<std::uint64_t>(kBytes - begin, 9);
      set.add(nullptr, {begin, end});
      for (std::uint64_t byte = begin; byte < end; ++byte) bytes.set(byte);
    }
    for (std::uint64_t begin = 0; begin < kBytes; ++begin) {
      bool any = false;
      for (std::uint64_t end = begin + 1; end <= kBytes; ++end) {
        any = any || bytes.test(end - 1);
        ASSERT_EQ(set.overlaps(nullptr, {begin, end}), any) << begin << " to " << end;
      }
    }
  }
}

TEST(RangeSet, ReachesTheLastByteThatThereIs) {
  RangeSet set;
  set.add(nullptr, {0, 1});
  set.add(nullptr, {~std::uint64_t{0} - 1, ~std::uint64_t{0}});
  EXPECT_FALSE(set.overlaps(nullptr, {1, ~std::uint64_t{0} - 1}));
  EXPECT_TRUE(set.overlaps(nullptr, {1, ~std::uint64_t{0}}));
}

TEST(RangeSet, MemoriesAreApart) {
  const int memories[] = {0, 0, 0};
  RangeSet set;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t byte = 0; byte < 100; ++byte) {  // more than are looked through one by one
      set.add(&memories[0], {byte, byte + 1});
      set.add(&memories[2], {byte, byte + 1});
      set.add(&memories[1], {100 + byte, 101 + byte});
    }
    for (const int& memory : memories) {
      EXPECT_EQ(set.overlaps(&memory, {50, 60}), &memory != &memories[1]);
      EXPECT_EQ(set.overlaps(&memory, {100, 300}), &memory == &memories[1]);
    }
    set.clear();
    for (const int& memory : memories) EXPECT_FALSE(set.overlaps(&memory, {0, 300}));
  }
}

}  // namespace
}  // namespace rota::core
