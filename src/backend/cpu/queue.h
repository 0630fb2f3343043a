#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "core/thread_pool.h"
#include "runtime/backend.h"

namespace rota::cpu {

// Runs batches in order on a thread of its own; the rows of each command are split over the pool.
class Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(std::uint32_t threads);
  ~Queue();

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void push(runtime::Batch batch, std::uint64_t ticket);
  void wait(std::uint64_t ticket);

 private:
  struct Job {
    runtime::Batch batch;
    std::uint64_t ticket;
  };

  Queue(std::unique_ptr<core::ThreadPool> pool, std::unique_ptr<runtime::WorkerScratch[]> scratch)
      : scratch_(std::move(scratch)), pool_(std::move(pool)) {}
  void work() noexcept;
  void run(const runtime::Command& command) noexcept;

  std::unique_ptr<runtime::WorkerScratch[]> scratch_;  // by the pool's threads
  std::unique_ptr<core::ThreadPool> pool_;
  std::mutex mutex_;
  std::condition_variable pushed_, finished_;
  std::deque<Job> jobs_;
  std::uint64_t finished_ticket_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rota::cpu
