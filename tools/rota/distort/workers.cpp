#include "distort/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace rota::tool {

void run_with(std::uint32_t threads, const Work& work) {
  std::atomic<std::uint64_t> next = 0;
  std::exception_ptr failure;
  std::mutex guard;
  const auto loop = [&](std::uint32_t worker) noexcept {
    try {
      for (std::uint64_t item = next++; item < work.items; item = next++) {
        work.run(worker, item);
        if (worker == 0 && work.done) work.done(std::min<std::uint64_t>(next, work.items));
      }
    } catch (...) {
      next = work.items;
      const std::lock_guard lock(guard);
      if (!failure) failure = std::current_exception();
    }
  };
  const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, work.items));
  std::vector<std::thread> helpers;
  helpers.reserve(wanted);
  try {
    for (std::uint32_t worker = 1; worker < wanted; ++worker) helpers.emplace_back(loop, worker);
  } catch (const std::system_error&) {
    static_cast<void>(0);  // those that could be started, and this one, do it all
  }
  loop(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace rota::tool
