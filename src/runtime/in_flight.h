#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"

namespace rota::runtime {

// Submissions of a GPU's queue that may not have finished, oldest first. A Submission has submit() -> Status,
// wait_for(timeout) -> Result<bool>, whether it has finished, and finished().
//
//   push()  -> | 7 | 8 | 9 |  -> retire(): off the front, as far as they have finished
//                ^ wait(7) waits outside of the lock; what is waited for stays until the last waiter left
template <class Submission>
class InFlight {
 public:
  // Submits. Tickets rise from call to call.
  Status push(std::unique_ptr<Submission> submission, std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    entries_.push_back({nullptr, ticket});  // before submitting: what runs must not fail to be remembered
    Status status = core::guarded([&] { return submission->submit(); });
    if (status.ok()) {
      entries_.back().submission = std::move(submission);
    } else {
      entries_.pop_back();
    }
    return status;
  }

  // A ticket that is no longer here has finished.
  Result<bool> wait_for(std::uint64_t ticket, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto waited = std::ranges::find(entries_, ticket, &Entry::ticket);
    if (waited == entries_.end()) return true;
    Entry& entry = *waited;  // a deque's elements stay where they are
    ++entry.waiters;
    lock.unlock();
    auto finished = core::guarded([&] { return entry.submission->wait_for(timeout); });
    lock.lock();
    --entry.waiters;
    return finished;
  }

  // keep(unique_ptr<Submission>) gets each that has finished, without the lock: what a submission lets go of may be an
  // engine's, and call back.
  template <class Keep>
  void retire(const Keep& keep) {
    while (std::unique_ptr<Submission> submission = pop_finished()) keep(std::move(submission));
  }

  // The ticket at the front.
  std::optional<std::uint64_t> oldest() {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return std::nullopt;
    return entries_.front().ticket;
  }

  // Takes out the oldest, finished or not; null if there is none. Precondition: nobody waits.
  std::unique_ptr<Submission> pop() noexcept {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return nullptr;
    std::unique_ptr<Submission> submission = std::move(entries_.front().submission);
    entries_.pop_front();
    return submission;
  }

 private:
  std::unique_ptr<Submission> pop_finished() {
    const std::lock_guard lock(mutex_);
    if (entries_.empty() || entries_.front().waiters != 0 || !entries_.front().submission->finished()) return nullptr;
    std::unique_ptr<Submission> submission = std::move(entries_.front().submission);
    entries_.pop_front();
    return submission;
  }

  struct Entry {
    std::unique_ptr<Submission> submission;
    std::uint64_t ticket;
    std::uint32_t waiters = 0;  // threads inside submission->wait()
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace rota::runtime
