#include "core/extent.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>
#include <set>
#include <vector>

namespace rota::core {
namespace {

constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();

// Visits the element index of every index tuple.
template <class Visit>
void for_each_element(std::uint64_t offset, std::span<const Axis> axes, const Visit& visit) {
  if (axes.empty()) return visit(offset);
  for (std::uint64_t i = 0; i < axes[0].count; ++i) {
    for_each_element(offset + i * axes[0].stride, axes.subspan(1), visit);
  }
}

std::vector<Axis> any_axes() {
  std::vector<Axis> axes(*rc::gen::inRange<std::size_t>(1, 5));
  for (Axis& axis : axes) axis = {*rc::gen::inRange<std::uint64_t>(0, 5), *rc::gen::inRange<std::uint64_t>(0, 40)};
  return axes;
}

RC_GTEST_PROP(ByteRange, IsWhatTheElementsTouch, ()) {
  const auto axes = any_axes();
  const auto offset = *rc::gen::inRange<std::uint64_t>(0, 100);
  std::uint64_t first = kMax;
  std::uint64_t last = 0;
  for_each_element(offset, axes, [&](std::uint64_t element) {
    first = std::min(first, element);
    last = std::max(last, element);
  });
  const auto range = byte_range(offset, axes, 2);
  RC_ASSERT(range.has_value());
  if (first == kMax) {
    RC_ASSERT(range->size() == 0U);
  } else {
    RC_ASSERT(range->begin == first * 2);
    RC_ASSERT(range->end == last * 2 + 2);
  }
}

RC_GTEST_PROP(Overlap, IsNeverMissed, ()) {
  const auto axes = any_axes();
  std::multiset<std::uint64_t> elements;
  for_each_element(0, axes, [&](std::uint64_t element) { elements.insert(element); });
  const bool overlaps = std::set(elements.begin(), elements.end()).size() != elements.size();
  if (overlaps) RC_ASSERT(may_overlap_itself(axes));
}

TEST(Overlap, IsNotSeenInPermutedPaddedOrSlicedLayouts) {
  EXPECT_FALSE(may_overlap_itself(std::array<Axis, 3>{{{7, 12}, {3, 4}, {4, 1}}}));
  EXPECT_FALSE(may_overlap_itself(std::array<Axis, 3>{{{3, 4}, {4, 1}, {7, 12}}}));
  EXPECT_FALSE(may_overlap_itself(std::array<Axis, 3>{{{7, 100}, {3, 9}, {4, 2}}}));
  EXPECT_FALSE(may_overlap_itself(std::array<Axis, 3>{{{1, 0}, {1, 0}, {4, 1}}}));
  EXPECT_FALSE(may_overlap_itself(std::array<Axis, 3>{{{3, 0}, {0, 8}, {8, 1}}})) << "nothing lies nowhere twice";
}

TEST(ByteRange, RefusesWhatPasses64Bits) {
  EXPECT_FALSE(byte_range(kMax, std::array<Axis, 1>{{{1, 1}}}, 2));
  EXPECT_FALSE(byte_range(kMax / 2, std::array<Axis, 1>{{{1, 1}}}, 4));
  EXPECT_FALSE(byte_range(0, std::array<Axis, 2>{{{kMax, kMax}, {1, 1}}}, 1));
  EXPECT_FALSE(byte_range(1, std::array<Axis, 2>{{{2, kMax - 1}, {2, 1}}}, 1));
  EXPECT_FALSE(byte_range(0, std::array<Axis, 2>{{{2, kMax / 2}, {2, kMax / 2}}}, 2));
  EXPECT_FALSE(byte_range(0, std::array<Axis, 1>{{{2, kMax}}}, 1));
  EXPECT_TRUE(byte_range(0, std::array<Axis, 1>{{{2, kMax - 1}}}, 1));
}

}  // namespace
}  // namespace rota::core
