#include "core/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace rota::core {
namespace {

struct Case {
  std::uint64_t tokens, position, capacity, page_slots, first_token;
  std::vector<std::uint32_t> page_table;

  TokenRun run() const {
    return {.tokens = tokens, .position = position, .capacity = capacity, .page_table = page_table};
  }
};

Case any_case() {
  Case made{};
  made.page_slots = *rc::gen::inRange<std::uint64_t>(1, 10);
  const auto pages = *rc::gen::inRange<std::uint64_t>(1, 8);
  made.capacity = pages * made.page_slots - *rc::gen::inRange<std::uint64_t>(0, made.page_slots);
  made.tokens = *rc::gen::inRange<std::uint64_t>(0, 100);
  made.position = *rc::gen::arbitrary<std::uint64_t>() % (std::numeric_limits<std::uint64_t>::max() - 200);
  made.first_token = *rc::gen::inRange<std::uint64_t>(0, 1000);
  made.page_table.resize(pages);
  std::iota(made.page_table.begin(), made.page_table.end(), *rc::gen::inRange<std::uint32_t>(0, 50));
  std::ranges::reverse(made.page_table);
  return made;
}

std::vector<Stretch> stretches_of(const Case& made) {
  std::vector<Stretch> stretches;
  for_each_stretch(made.run(), made.first_token, made.page_slots,
                   [&](const Stretch& stretch) { stretches.push_back(stretch); });
  return stretches;
}

// Where each token would go, were they stored one by one: the newest owner of a slot stays.
std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> stored_one_by_one(const Case& made) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> owner;
  for (std::uint64_t i = 0; i < made.tokens; ++i) {
    const std::uint64_t slot = (made.position + i) % made.capacity;
    owner[{made.page_table[slot / made.page_slots], slot % made.page_slots}] = made.first_token + i;
  }
  return owner;
}

RC_GTEST_PROP(Placement, IsThatOfTokensStoredOneByOne, ()) {
  const Case made = any_case();
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> owner;
  for (const Stretch& stretch : stretches_of(made)) {
    RC_ASSERT(stretch.count > 0U);
    for (std::uint64_t i = 0; i < stretch.count; ++i) {
      const bool fresh = owner.emplace(std::pair(stretch.at.page, stretch.at.slot + i), stretch.token + i).second;
      RC_ASSERT(fresh);  // no slot twice
    }
  }
  RC_ASSERT(owner == stored_one_by_one(made));
}

RC_GTEST_PROP(Placement, StaysInsideItsPages, ()) {
  const Case made = any_case();
  for (const Stretch& stretch : stretches_of(made)) {
    RC_ASSERT(stretch.at.slot + stretch.count <= made.page_slots);
    RC_ASSERT(std::ranges::find(made.page_table, stretch.at.page) != made.page_table.end());
  }
}

RC_GTEST_PROP(Placement, DoesNotDependOnHowTokensAreBatched, ()) {
  const Case whole = any_case();
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> owner;
  for (std::uint64_t done = 0; done < whole.tokens;) {
    Case part = whole;
    part.tokens = *rc::gen::inRange<std::uint64_t>(1, whole.tokens - done + 1);
    part.position += done;
    part.first_token += done;
    for (const Stretch& stretch : stretches_of(part)) {
      for (std::uint64_t i = 0; i < stretch.count; ++i) {
        owner[{stretch.at.page, stretch.at.slot + i}] = stretch.token + i;
      }
    }
    done += part.tokens;
  }
  RC_ASSERT(owner == stored_one_by_one(whole));
}

TEST(Placement, WithoutATableIsOnePage) {
  std::vector<Stretch> stretches;
  for_each_stretch({.tokens = 5, .position = 6, .capacity = 8}, 0, 8,
                   [&](const Stretch& stretch) { stretches.push_back(stretch); });
  ASSERT_EQ(stretches.size(), 2U);
  EXPECT_EQ(stretches[0].at, (PageSlot{0, 6}));
  EXPECT_EQ(stretches[0].count, 2U);
  EXPECT_EQ(stretches[1].at, (PageSlot{0, 0}));
  EXPECT_EQ(stretches[1].count, 3U);
}

TEST(Placement, WorksAtCompileTime) {
  static_assert(slot_of(17, 8) == 1);
  static_assert(tokens_dropped(17, 8) == 9);
  static_assert(tokens_dropped(8, 8) == 0);
  static constexpr std::array<std::uint32_t, 2> kTable{7, 3};
  static_assert(locate(5, 4, kTable) == PageSlot{3, 1});
}

}  // namespace
}  // namespace rota::core
