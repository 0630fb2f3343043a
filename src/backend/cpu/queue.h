#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backend/cpu/stage.h"
#include "core/shared_loop.h"
#include "runtime/backend.h"

namespace rota::cpu {

using ParallelFor = decltype(DeviceOptions::parallel_for);

// Runs batches in order. One thread at a time leads: it goes through the stages of a batch, and the others help with
// each stage that is worth sharing. A thread that waits for a batch leads or helps instead of sleeping.
//
//   push() -> | batch 8 | batch 9 |        one leader:    stage  |  stage  |  stage ...
//               wakes whom it must                          |         |
//                                          helpers:      slices    slices     spin a little, then sleep
//
// Threads of our own are one fewer than the device has, at least one: the thread that waits is the other. With the
// caller's threads there are none of our own, and run_here() goes through the batches.
class Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(std::uint32_t threads, ParallelFor parallel_for);
  ~Queue();

  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void push(runtime::Batch batch, std::uint64_t ticket);

  // With the caller's threads: returns when what was pushed has run, here or where another thread is about it.
  void run_here() noexcept;

  void wait(std::uint64_t ticket) noexcept;

  // Sleeps, and does none of the work. Returns whether the batch has finished.
  bool wait_until(std::uint64_t ticket, std::chrono::steady_clock::time_point deadline) noexcept;

 private:
  struct Job {
    runtime::Batch batch;
    std::uint64_t ticket;
    bool wide;  // has a stage that is worth waking threads for
  };
  using Lock = std::unique_lock<std::mutex>;

  Queue(std::uint32_t threads, ParallelFor parallel_for);

  void work(std::uint32_t thread) noexcept;
  void take_part() noexcept;  // what a thread of the caller's does, in parallel_for
  void lead(Lock& lock, std::uint64_t last_ticket) noexcept;
  void run(const runtime::Batch& batch) noexcept;
  void run(const Stage& stage) noexcept;
  template <class Done>
  void help(std::uint32_t thread, const Done& done) noexcept;
  template <class Done>
  void help_as_guest(Lock& lock, const Done& done) noexcept;
  void wake_helpers() noexcept;
  std::optional<std::uint32_t> take_number() noexcept;
  bool has_unled() const noexcept { return !led_ && !jobs_.empty(); }
  bool has_finished(std::uint64_t ticket) const noexcept {
    return finished_ticket_.load(std::memory_order_acquire) >= ticket;
  }

  const std::uint32_t threads_;
  const ParallelFor parallel_for_;
  core::SharedLoop loop_;
  std::unique_ptr<runtime::WorkerScratch[]> scratch_;  // by number: the leader's, our threads', guests'

  std::mutex mutex_;  // guards what follows; atomics are also read without it
  std::condition_variable pushed_, finished_;
  std::deque<Job> jobs_;
  std::uint64_t newest_ticket_ = 0;          // that was pushed
  std::vector<std::uint32_t> free_numbers_;  // of threads that are not our own, while they help
  std::atomic<bool> led_ = false;
  std::atomic<bool> unled_ = false;  // has_unled(), for those who spin
  std::atomic<std::uint64_t> finished_ticket_ = 0;
  std::atomic<std::uint32_t> asleep_ = 0;  // threads of our own
  std::atomic<bool> told_ = false;         // those who sleep were told to wake
  std::uint64_t wakes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace rota::cpu
