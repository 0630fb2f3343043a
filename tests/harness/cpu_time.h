#pragma once

#include <chrono>
#include <ctime>

namespace rota::test {

// What the calling thread has computed for, whoever else the machine works for and however other threads spin.
inline std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace rota::test
