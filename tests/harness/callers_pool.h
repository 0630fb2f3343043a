#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rota::test {

// A thread pool as an engine might have it. The thread that calls parallel_for() takes part; from inside of a worker
// the tasks run one after the other, as with OpenMP.
class CallersPool {
 public:
  explicit CallersPool(std::uint32_t workers) {
    for (std::uint32_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~CallersPool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    queued_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  CallersPool(const CallersPool&) = delete;
  CallersPool& operator=(const CallersPool&) = delete;

  void parallel_for(std::uint32_t tasks, const std::function<void(std::uint32_t)>& run) {
    if (inside_) {
      for (std::uint32_t i = 0; i < tasks; ++i) run(i);
      return;
    }
    std::uint32_t left = tasks;
    {
      const std::lock_guard lock(mutex_);
      for (std::uint32_t i = 0; i < tasks; ++i) {
        tasks_.emplace_back([&, i] {
          run(i);
          const std::lock_guard done(mutex_);
          --left;
          finished_.notify_all();
        });
      }
    }
    queued_.notify_all();
    std::unique_lock lock(mutex_);
    while (left > 0) {
      if (!take_one(lock)) finished_.wait(lock, [&] { return left == 0 || !tasks_.empty(); });
    }
  }

 private:
  bool take_one(std::unique_lock<std::mutex>& lock) {
    if (tasks_.empty()) return false;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
    return true;
  }
  void work() {
    inside_ = true;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!take_one(lock)) queued_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    }
  }

  static inline thread_local bool inside_ = false;
  std::mutex mutex_;
  std::condition_variable queued_, finished_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rota::test
