#include "core/shared_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

namespace rota::core {
namespace {

// Threads that help with every loop until they are told to leave.
class Helpers {
 public:
  Helpers(SharedLoop& loop, std::uint32_t count) {
    for (std::uint32_t thread = 1; thread <= count; ++thread) {
      threads_.emplace_back([this, &loop, thread] {
        std::uint64_t last = 0;
        for (std::uint32_t turn = 0; !leaving_; ++turn) {
          if (loop.help(thread, last)) turn = 0;
          spin_once(turn);
        }
      });
    }
  }
  ~Helpers() {
    leaving_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  std::atomic<bool> leaving_ = false;
  std::vector<std::thread> threads_;
};

// Equal slices, of `least` items where there are as many.
auto slices_of(std::uint64_t items, std::uint64_t least) {
  return [=](std::uint64_t begin, std::uint64_t slices) {
    const std::uint64_t left = items - begin;
    return begin + std::min(std::max({std::uint64_t{1}, least, left / slices}), left);
  };
}

TEST(SharedLoop, CallsEveryItemExactlyOnce) {
  for (const std::uint32_t threads : {1U, 2U, 3U, 7U}) {
    SharedLoop loop(threads);
    const Helpers helpers(loop, threads - 1);
    for (const std::uint64_t items : {0U, 1U, 2U, 3U, 27U, 28U, 29U, 1000U}) {
      std::vector<std::atomic<int>> calls(items);
      for (const std::uint64_t min_slice : {0U, 1U, 5U, 28U, 5000U}) {
        for (auto& count : calls) count = 0;
        loop.run(0, items, slices_of(items, min_slice), [&](const SharedLoop::Slice& slice) {
          ASSERT_LT(slice.begin, slice.end);
          ASSERT_TRUE(slice.end - slice.begin >= min_slice || slice.end == items);
          for (std::uint64_t i = slice.begin; i < slice.end; ++i) ++calls[i];
        });
        for (const auto& count : calls) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(SharedLoop, TellsEachThreadWhereItGoesOn) {
  constexpr std::uint32_t kThreads = 3;
  SharedLoop loop(kThreads);
  const Helpers helpers(loop, kThreads - 1);
  std::atomic<std::uint64_t> told = 0;
  for (int round = 0; round < 200; ++round) {
    std::array<std::optional<std::uint64_t>, kThreads> expected{};
    loop.run(0, 50, slices_of(50, 1), [&](const SharedLoop::Slice& slice) {
      auto& mine = expected[slice.thread];
      ASSERT_EQ(slice.begin, mine.value_or(slice.begin));
      ASSERT_TRUE(!slice.next || *slice.next >= slice.end);
      // The last items are for whoever comes first: nobody has one in hand while others have none.
      ASSERT_LE(slice.next.value_or(0), 50 - kThreads);
      if (slice.next) ++told;
      mine = slice.next;
    });
    for (const auto& next : expected) ASSERT_FALSE(next);
  }
  EXPECT_GE(told, 200U);
}

TEST(SharedLoop, NeedsNobodyToCome) {
  SharedLoop loop(7);
  std::uint64_t sum = 0;
  loop.run(3, 100, slices_of(100, 1), [&](const SharedLoop::Slice& slice) {
    EXPECT_EQ(slice.thread, 3U);
    sum += slice.end - slice.begin;
  });
  EXPECT_EQ(sum, 100U);
}

TEST(SharedLoop, SurvivesManySmallLoops) {
  SharedLoop loop(4);
  const Helpers helpers(loop, 3);
  std::vector<std::uint64_t> sums(64);
  for (int round = 0; round < 2000; ++round) {
    loop.run(0, sums.size(), slices_of(sums.size(), 1), [&](const SharedLoop::Slice& slice) {
      for (std::uint64_t i = slice.begin; i < slice.end; ++i) ++sums[i];
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), 2000U * 64);
}

TEST(SharedLoop, SmallWorkStaysOnOneThread) {
  SharedLoop loop(4);
  const Helpers helpers(loop, 3);
  loop.run(0, 100, slices_of(100, 100), [](const SharedLoop::Slice& slice) {
    EXPECT_EQ(slice.thread, 0U);
    EXPECT_EQ(slice.end - slice.begin, 100U);
  });
}

// Whoever runs a loop falls asleep where a helper takes long, and is woken by it.
TEST(SharedLoop, WaitsForASlowHelper) {
  SharedLoop loop(2);
  const Helpers helpers(loop, 1);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> helped = false;
    std::atomic<int> calls = 0;
    loop.run(0, 2, slices_of(2, 1), [&](const SharedLoop::Slice& slice) {
      if (slice.thread == 1) {
        helped = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } else {
        while (!helped) std::this_thread::yield();  // there are two slices: the other one is the helper's
      }
      ++calls;
    });
    ASSERT_EQ(calls, 2);
  }
}

}  // namespace
}  // namespace rota::core
