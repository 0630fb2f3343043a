#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <numeric>

namespace rota::core {
namespace {

TEST(ThreadPool, CallsEveryItemExactlyOnce) {
  for (const std::uint32_t threads : {1U, 2U, 3U, 7U}) {
    auto pool = ThreadPool::create(threads).value();
    EXPECT_EQ(pool->threads(), threads);
    for (const std::uint64_t items : {0U, 1U, 2U, 3U, 27U, 28U, 29U, 1000U}) {
      std::vector<std::atomic<int>> calls(items);
      for (const std::uint64_t min_part : {0U, 1U, 5U, 28U, 5000U}) {
        for (auto& count : calls) count = 0;
        pool->for_each_part(items, min_part, [&](std::uint64_t begin, std::uint64_t end) {
          ASSERT_LT(begin, end);
          ASSERT_TRUE(end - begin >= min_part || end == items);
          for (std::uint64_t i = begin; i < end; ++i) ++calls[i];
        });
        for (const auto& count : calls) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(ThreadPool, SurvivesManySmallLoops) {
  auto pool = ThreadPool::create(4).value();
  std::vector<std::uint64_t> sums(64);
  for (int round = 0; round < 2000; ++round) {
    pool->for_each_part(sums.size(), 1, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) ++sums[i];
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), 2000U * 64);
}

TEST(ThreadPool, SmallWorkStaysOnTheCallersThread) {
  auto pool = ThreadPool::create(4).value();
  pool->for_each_part(100, 100, [caller = std::this_thread::get_id()](std::uint64_t begin, std::uint64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(end - begin, 100U);
  });
}

TEST(ThreadPool, SleepsWhenIdle) {
  auto pool = ThreadPool::create(4).value();
  pool->for_each_part(100, 1, [](std::uint64_t, std::uint64_t) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double busy_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_seconds, 0.05);
}

}  // namespace
}  // namespace rota::core
