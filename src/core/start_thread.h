#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "core/callers_thread.h"

namespace rota::core {

// A thread of the library's own, which takes none of the application's signals; none where the system has no more.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    const BlockedSignals blocked;
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace rota::core
