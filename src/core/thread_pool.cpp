#include "core/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "core/callers_thread.h"
#include "core/error.h"

namespace rota::core {
namespace {

// What is left is divided into so many slices for each thread, and a thread takes one: large slices first, and at last
// small ones, so that all end together though the machine takes one away for a while.
constexpr std::uint64_t kSlicesPerThread = 2;

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(std::uint32_t threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  const BlockedSignals blocked;
  try {
    pool->workers_.reserve(threads - 1);
    while (pool->threads() < threads) {
      pool->workers_.emplace_back([raw = pool.get(), thread = pool->threads()] { raw->work(thread); });
    }
  } catch (const std::system_error& error) {
    return Error{Errc::out_of_memory, text("cpu: cannot start {} threads: {}", threads, error.what())};
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_slices(const Loop& loop, std::uint32_t thread) noexcept {
  std::uint64_t begin = next_item_.load(std::memory_order_relaxed);
  while (begin < loop.items) {
    const std::uint64_t left = loop.items - begin;
    const std::uint64_t slice = std::max({std::uint64_t{1}, loop.min_slice, left / (threads() * kSlicesPerThread)});
    const std::uint64_t end = begin + std::min(slice, left);
    if (!next_item_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    loop.call(loop.body, {begin, end, thread});
    begin = next_item_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::run(const Loop& loop) noexcept {
  if (workers_.empty() || loop.items <= loop.min_slice) {
    if (loop.items > 0) loop.call(loop.body, {0, loop.items, 0});
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    next_item_.store(0, std::memory_order_relaxed);
    workers_busy_ = workers_.size();
    ++loops_started_;
  }
  started_.notify_all();
  take_slices(loop, 0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return workers_busy_ == 0; });
}

void ThreadPool::work(std::uint32_t thread) noexcept {
  const DefaultFloats floats;  // whatever rounding the opening thread had
  std::uint64_t loops_seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return stopping_ || loops_started_ != loops_seen; });
    if (stopping_) return;
    loops_seen = loops_started_;
    const Loop loop = loop_;
    lock.unlock();
    take_slices(loop, thread);
    lock.lock();
    if (--workers_busy_ == 0) finished_.notify_one();
  }
}

}  // namespace rota::core
