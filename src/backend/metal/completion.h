#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "backend/metal/objc.h"

namespace rota::mtl {

// What completed handlers set and waiting threads wait for. Shared with the handlers, which outlive nobody else.
class Completion {
 public:
  void expect_one() noexcept {
    const std::lock_guard lock(mutex_);
    ++left_;
  }

  // A command buffer has completed, with an error or nil. It needs no memory: nobody could be told that there is none.
  void end_one(NSError* error) noexcept {
    const std::lock_guard lock(mutex_);
    has_run_ = true;
    if (error != nil) error_ = retained(error);
    if (--left_ == 0) all_done_.notify_all();
  }

  // A command buffer was released without a commit.
  void give_up_one() noexcept {
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) all_done_.notify_all();
  }

  bool is_over() const noexcept {
    const std::lock_guard lock(mutex_);
    return left_ == 0;
  }
  // Whether a command buffer has completed. Once all is over.
  bool has_run() const noexcept {
    const std::lock_guard lock(mutex_);
    return has_run_;
  }
  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return all_done_.wait_until(lock, deadline, [this] { return left_ == 0; });
  }

  // Of a command buffer that ended in error; nil if none did. Once all is over.
  NSError* error() const noexcept {
    const std::lock_guard lock(mutex_);
    return error_.get();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable all_done_;
  std::size_t left_ = 0;  // command buffers
  bool has_run_ = false;
  Owned<NSError*> error_;
};

// Adds a handler to a command buffer that tells its end: that it has completed, or that it was released without a
// commit, which releases the handler.
void tell_end(id<MTLCommandBuffer> commands, std::shared_ptr<Completion> to);

}  // namespace rota::mtl
