#include "page_store/valkey/waiting.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <vector>

namespace rota::page_store {
namespace {

// Rounded up, so that nobody polls with 0 for a millisecond.
int milliseconds_to(Deadline deadline) {
  const auto now = Clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<long long>(left, std::numeric_limits<int>::max()));
}

}  // namespace

bool Until::is_woken() const {
  pollfd ready{.fd = wake, .events = POLLIN};
  return wake >= 0 && poll(&ready, 1, 0) > 0;
}

bool wait_for_any(std::span<pollfd> ready, const Until& until) {
  std::vector<pollfd> all(ready.begin(), ready.end());
  if (until.wake >= 0) all.push_back({.fd = until.wake, .events = POLLIN});
  for (;;) {
    const int found = poll(all.data(), all.size(), milliseconds_to(until.deadline));
    if (found < 0 && !until.is_late()) continue;  // a signal came
    bool any = false;
    for (std::size_t i = 0; i < ready.size(); ++i) {
      ready[i].revents = found > 0 ? all[i].revents : short{0};
      any = any || ready[i].revents != 0;
    }
    return any;
  }
}

Status wait_for(int socket, short events, const Until& until) {
  pollfd ready{.fd = socket, .events = events};
  if (wait_for_any({&ready, 1}, until)) return {};
  return Error{Errc::io, "no answer in time"};
}

#if defined(__linux__)

NoPipeSignal::NoPipeSignal() noexcept {
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &callers_);
}

NoPipeSignal::~NoPipeSignal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  if (!was_pending_) sigtimedwait(&pipe, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &callers_, nullptr);
}

#else  // a socket's option does it

NoPipeSignal::NoPipeSignal() noexcept = default;
NoPipeSignal::~NoPipeSignal() = default;

#endif

}  // namespace rota::page_store
