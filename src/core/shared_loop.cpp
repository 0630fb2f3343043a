#include "core/shared_loop.h"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rota::core {
namespace {

// What is left is divided into so many slices for each thread, and a thread takes one: large slices first, and at last
// small ones, so that all end together though the machine takes one away for a while.
constexpr std::uint64_t kSlicesPerThread = 2;

//   63              18      17       16   15        0
//  | number of the loop | asleep | open | threads inside |
constexpr std::uint64_t kInside = 0xffff;
constexpr std::uint64_t kOpen = std::uint64_t{1} << 16;
constexpr std::uint64_t kAsleep = std::uint64_t{1} << 17;  // run() sleeps until the last one inside leaves
constexpr std::uint64_t kNumber = std::uint64_t{1} << 18;

constexpr std::uint32_t kTurnsBeforeYield = 64;
constexpr std::uint32_t kTurnsBeforeSleep = 4096;

}  // namespace

void spin_once(std::uint32_t turn) noexcept {
  if (turn > kTurnsBeforeYield) {
    std::this_thread::yield();
    return;
  }
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// If it leaves so many items at least.
std::optional<SharedLoop::Slice> SharedLoop::take_slice(std::uint32_t thread, std::uint64_t leave) noexcept {
  std::uint64_t begin = next_item_.load(std::memory_order_relaxed);
  while (begin < loop_.items) {
    const std::uint64_t end = loop_.end_of(loop_.cut, begin, threads_ * kSlicesPerThread);
    if (loop_.items - end < leave) break;
    if (next_item_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) return Slice{begin, end, thread};
  }
  return std::nullopt;
}

void SharedLoop::take_slices(std::uint32_t thread) noexcept {
  for (std::optional<Slice> slice = take_slice(thread, 0), ahead; slice;
       slice = ahead ? ahead : take_slice(thread, 0)) {
    ahead = take_slice(thread, threads_ - 1);
    if (ahead) slice->next = ahead->begin;
    loop_.call(loop_.body, *slice);
  }
}

void SharedLoop::wait_until_alone() noexcept {
  std::uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (std::uint32_t turn = 0; (state & kInside) != 0; ++turn) {
    if (turn < kTurnsBeforeSleep) {
      spin_once(turn);
    } else {
      state = state_.fetch_or(kAsleep, std::memory_order_acq_rel) | kAsleep;
      if ((state & kInside) != 0) state_.wait(state, std::memory_order_acquire);
    }
    state = state_.load(std::memory_order_acquire);
  }
}

void SharedLoop::run_erased(std::uint32_t thread, const Loop& loop) noexcept {
  if (loop.items == 0) return;
  if (threads_ == 1 || loop.end_of(loop.cut, 0, threads_ * kSlicesPerThread) == loop.items) {
    loop.call(loop.body, {0, loop.items, thread});
    return;
  }
  loop_ = loop;
  next_item_.store(0, std::memory_order_relaxed);
  const std::uint64_t number = state_.load(std::memory_order_relaxed) / kNumber + 1;
  state_.store(number * kNumber | kOpen, std::memory_order_release);
  take_slices(thread);
  wait_until_alone();
}

bool SharedLoop::help(std::uint32_t thread, std::uint64_t& last) noexcept {
  std::uint64_t state = state_.load(std::memory_order_relaxed);
  do {
    if ((state & kOpen) == 0 || state / kNumber == last) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed));
  last = state / kNumber;
  take_slices(thread);
  const std::uint64_t left = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  if ((left & kInside) == 0 && (left & kAsleep) != 0) state_.notify_one();
  return true;
}

}  // namespace rota::core
