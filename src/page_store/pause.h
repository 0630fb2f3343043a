#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>

namespace rota::page_store {

// How long a store that fails is left alone, by all who use it: twice as long after each failure, until it serves.
//
//   fails |-- 0.1 s --| fails |-- 0.2 s --| fails |-- 0.4 s --| ... 30 s
//
// Thread-safe.
class Pause {
 public:
  using Clock = std::chrono::steady_clock;

  bool is_on() const {
    const std::lock_guard lock(mutex_);
    return Clock::now() < until_;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    until_ = {};
    length_ = {};
  }

  // What fails while the store is left alone began before: it is the same failure.
  void begin() {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now < until_) return;
    const bool is_long_ago = now > until_ + kLongest;
    length_ = is_long_ago ? kFirst : std::clamp(2 * length_, kFirst, kLongest);
    until_ = now + length_;
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{100}, kLongest{30'000};

  mutable std::mutex mutex_;
  Clock::time_point until_ = {};
  std::chrono::milliseconds length_ = {};
};

}  // namespace rota::page_store
