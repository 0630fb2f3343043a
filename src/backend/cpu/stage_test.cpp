#include "backend/cpu/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

namespace rota::cpu {
namespace {

// Counts how often it was called for each of its items, and how often an item was what comes next.
struct Counts {
  std::span<int> calls, nexts;
};
void count_items(const runtime::CpuCall& call) noexcept {
  const auto& counts = call.params_as<Counts>();
  for (std::uint64_t item = call.first_item; item < call.last_item; ++item) {
    ++counts.calls[item];
    ++counts.nexts[call.after(item)];
  }
}

const runtime::Kernel kCountItems{.name = "count_items", .code = {}, .bindings = {}, .cpu = count_items};

// Commands, and how often each item of each was called for.
class Commands {
 public:
  Commands& add(std::uint64_t items, std::uint64_t item_bytes, bool barrier_before) {
    calls_.emplace_back(items);
    nexts_.emplace_back(items);
    params_.push_back({calls_.back(), nexts_.back()});
    all_.push_back({.kernel = &kCountItems,
                    .constants = {},
                    .barrier_before = barrier_before,
                    .dispatch = {.groups = 1, .items = items, .item_bytes = item_bytes},
                    .params = std::as_bytes(std::span(&params_.back(), 1)),
                    .bindings = {}});
    return *this;
  }
  std::span<const runtime::Command> all() const { return all_; }
  const std::vector<int>& nexts(std::size_t command) const { return nexts_[command]; }
  void expect_each_called(std::size_t commands, int times) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const int wanted = i < commands ? times : 0;
      EXPECT_TRUE(std::ranges::all_of(calls_[i], [&](int count) { return count == wanted; })) << i;
    }
  }

 private:
  std::deque<std::vector<int>> calls_, nexts_;
  std::deque<Counts> params_;  // which commands point to
  std::vector<runtime::Command> all_;
};

TEST(Stage, EndsBeforeABarrierAndIsNeverTooLong) {
  Commands commands;
  commands.add(1, 1, true).add(1, 1, false).add(1, 1, false).add(1, 1, true);
  EXPECT_EQ(Stage::first_of(commands.all()).size(), 3U);  // its own barrier is the last stage's end
  EXPECT_EQ(Stage::first_of(commands.all().subspan(3)).size(), 1U);
  Commands many;
  for (int i = 0; i < 20; ++i) many.add(3, 1, false);
  std::size_t stages = 0;
  for (auto left = many.all(); !left.empty(); ++stages) {
    const Stage stage = Stage::first_of(left);
    stage.run({0, stage.items()}, nullptr);
    left = left.subspan(stage.size());
  }
  EXPECT_EQ(stages, 3U);
  many.expect_each_called(20, 1);
}

TEST(Stage, RunsEachItemOfEachCommandOnceHoweverItIsDivided) {
  for (const std::uint64_t slice : {1U, 2U, 3U, 5U, 7U, 100U}) {
    Commands commands;
    commands.add(0, 8, false).add(5, 8, false).add(1, 8, false).add(0, 8, false).add(9, 8, false).add(4, 8, true);
    const Stage stage = Stage::first_of(commands.all());
    ASSERT_EQ(stage.items(), 15U);
    for (std::uint64_t begin = 0; begin < stage.items(); begin += slice) {
      stage.run({begin, std::min(begin + slice, stage.items())}, nullptr);
    }
    commands.expect_each_called(5, 1);
  }
}

// What a thread reads next may be prefetched where it is of the same command.
TEST(Stage, TellsACommandWhereItsThreadGoesOn) {
  Commands commands;
  commands.add(5, 8, false).add(9, 8, false);
  const Stage stage = Stage::first_of(commands.all());
  stage.run({0, 2, 0, 3}, nullptr);   // then with 3 of the first
  stage.run({3, 7, 0, 12}, nullptr);  // two of the first, two of the second, then with 7 of that
  stage.run({12, 14}, nullptr);       // and with nothing more
  EXPECT_EQ(commands.nexts(0), (std::vector<int>{0, 1, 0, 1, 2}));
  EXPECT_EQ(commands.nexts(1), (std::vector<int>{0, 1, 0, 0, 0, 0, 0, 1, 2}));
}

TEST(Stage, KnowsAboutHowMuchItsCommandsMove) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  Commands commands;
  commands.add(10, 100, false).add(30, 0, false).add(10, kMost, true).add(10, kMost, false);
  EXPECT_EQ(Stage::first_of(commands.all()).bytes(), 10U * 100 + 30);
  const Stage huge = Stage::first_of(commands.all().subspan(2));
  EXPECT_GT(huge.bytes(), kMost / 32);
  EXPECT_EQ(huge.slice_end(0, 1, kMost), 1U);
  EXPECT_EQ(huge.slice_end(19, 1, kMost), 20U);
}

// Not their number: ten items of 100 bytes are as much as a thousand of one.
TEST(Stage, IsDividedByWhatItsItemsMove) {
  Commands commands;
  commands.add(10, 100, false).add(0, 7, false).add(1000, 1, false);
  const Stage stage = Stage::first_of(commands.all());
  EXPECT_EQ(stage.slice_end(0, 4, 1), 5U);
  EXPECT_EQ(stage.slice_end(5, 4, 1), 8U);         // 375 bytes
  EXPECT_EQ(stage.slice_end(9, 2, 1), 10 + 450U);  // of both
  EXPECT_EQ(stage.slice_end(10, 4, 1), 10 + 250U);
  EXPECT_EQ(stage.slice_end(0, 4, 1100), 10 + 100U);
  EXPECT_EQ(stage.slice_end(0, 1000, 1), 1U);  // one at least
  EXPECT_EQ(stage.slice_end(1009, 4, 1), 1010U);
  EXPECT_EQ(stage.slice_end(0, 1, 1), stage.items());
  std::uint64_t begin = 0;
  while (begin < stage.items()) {
    const std::uint64_t end = stage.slice_end(begin, 4, 50);
    ASSERT_GT(end, begin);
    begin = end;
  }
  EXPECT_EQ(begin, stage.items());
}

}  // namespace
}  // namespace rota::cpu
