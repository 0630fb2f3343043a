#pragma once

#include <pthread.h>

#include <cstddef>
#include <system_error>

namespace rota::test {

// What musl gives a thread; macOS gives four times as much, glibc 64 times.
inline constexpr std::size_t kSmallStackBytes = 128U << 10;

// Threads that start from now on have no more than that.
inline void make_stacks_small() {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error == 0) error = pthread_attr_setstacksize(&attributes, kSmallStackBytes);
  if (error == 0) error = pthread_setattr_default_np(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "threads with small stacks");
  pthread_attr_destroy(&attributes);
}

}  // namespace rota::test
