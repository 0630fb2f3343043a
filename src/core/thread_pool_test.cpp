#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>

namespace rota::core {
namespace {

TEST(ThreadPool, CallsEveryItemExactlyOnce) {
  for (const std::uint32_t threads : {1U, 2U, 3U, 7U}) {
    auto pool = ThreadPool::create(threads).value();
    EXPECT_EQ(pool->threads(), threads);
    for (const std::uint64_t items : {0U, 1U, 2U, 3U, 27U, 28U, 29U, 1000U}) {
      std::vector<std::atomic<int>> calls(items);
      for (const std::uint64_t min_slice : {0U, 1U, 5U, 28U, 5000U}) {
        for (auto& count : calls) count = 0;
        pool->for_each_slice(items, min_slice, [&](const ThreadPool::Slice& slice) {
          ASSERT_LT(slice.begin, slice.end);
          ASSERT_TRUE(slice.end - slice.begin >= min_slice || slice.end == items);
          for (std::uint64_t i = slice.begin; i < slice.end; ++i) ++calls[i];
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
    pool->for_each_slice(sums.size(), 1, [&](const ThreadPool::Slice& slice) {
      for (std::uint64_t i = slice.begin; i < slice.end; ++i) ++sums[i];
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), 2000U * 64);
}

TEST(ThreadPool, SmallWorkStaysOnTheCallersThread) {
  auto pool = ThreadPool::create(4).value();
  pool->for_each_slice(100, 100, [caller = std::this_thread::get_id()](const ThreadPool::Slice& slice) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(slice.thread, 0U);
    EXPECT_EQ(slice.end - slice.begin, 100U);
  });
}

// What a thread has for itself, it finds by its number: two must never have the same.
TEST(ThreadPool, TellsEachThreadItsOwnNumber) {
  constexpr std::uint32_t kThreads = 4;
  auto pool = ThreadPool::create(kThreads).value();
  std::array<std::atomic<std::thread::id>, kThreads> owners{};
  for (int round = 0; round < 200; ++round) {
    pool->for_each_slice(64, 1, [&](const ThreadPool::Slice& slice) {
      ASSERT_LT(slice.thread, kThreads);
      std::thread::id owner{};
      if (owners[slice.thread].compare_exchange_strong(owner, std::this_thread::get_id())) return;
      ASSERT_EQ(owner, std::this_thread::get_id());
    });
  }
  EXPECT_EQ(owners[0].load(), std::this_thread::get_id());
}

TEST(ThreadPool, SleepsWhenIdle) {
  auto pool = ThreadPool::create(4).value();
  pool->for_each_slice(100, 1, [](const ThreadPool::Slice&) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double busy_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_seconds, 0.05);
}

}  // namespace
}  // namespace rota::core
