#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rota/result.h"

namespace rota::core {

// Splits one loop at a time over a fixed number of threads, the caller's own among them. Idle
// threads sleep. Which thread takes which slice is not fixed, so slices must not depend on each other.
class ThreadPool {
 public:
  static Result<std::unique_ptr<ThreadPool>> create(std::uint32_t threads);
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t threads() const noexcept { return static_cast<std::uint32_t>(workers_.size()) + 1; }

  // Items of a loop, [begin, end), and which of the threads calls for them, from 0, the caller's, on.
  struct Slice {
    std::uint64_t begin, end;
    std::uint32_t thread;
  };

  // Calls body(slice) for slices that together are [0, items), of at least `min_slice` items where
  // there are as many. Returns when all are done.
  template <class Body>
  void for_each_slice(std::uint64_t items, std::uint64_t min_slice, const Body& body) noexcept {
    run({items, min_slice, &body,
         [](const void* erased, const Slice& slice) { (*static_cast<const Body*>(erased))(slice); }});
  }

 private:
  struct Loop {
    std::uint64_t items = 0;
    std::uint64_t min_slice = 1;
    const void* body = nullptr;
    void (*call)(const void*, const Slice&) = nullptr;
  };

  ThreadPool() = default;
  void run(const Loop& loop) noexcept;
  void work(std::uint32_t thread) noexcept;
  void take_slices(const Loop& loop, std::uint32_t thread) noexcept;

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  Loop loop_;
  std::uint64_t loops_started_ = 0;
  std::size_t workers_busy_ = 0;
  bool stopping_ = false;
  std::atomic<std::uint64_t> next_item_{0};
  std::vector<std::thread> workers_;
};

}  // namespace rota::core
