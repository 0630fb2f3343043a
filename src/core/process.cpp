#include "core/process.h"

#include <pthread.h>

#include <atomic>

namespace rota::core {
namespace {

std::atomic<std::uint64_t> forks = 0;
std::atomic<const OfProcess*> newest_left = nullptr;

// When the library is loaded: later, a fork() could come between.
[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, [] { ++forks; });

}  // namespace

std::uint64_t process_number() noexcept { return forks.load(std::memory_order_relaxed); }

void OfProcess::leave() const noexcept {
  next_left_ = newest_left.load();
  while (!newest_left.compare_exchange_weak(next_left_, this)) {
  }
}

}  // namespace rota::core
