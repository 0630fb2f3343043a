#pragma once

#include <poll.h>

#include <chrono>
#include <csignal>
#include <span>

#include "page_store/medium.h"
#include "rota/result.h"

// Waiting for servers, never longer than told.

namespace rota::page_store {

// How long to wait: to the deadline, or until `wake` can be read.
struct Until {
  Deadline deadline;
  int wake = -1;

  Until at_most(std::chrono::milliseconds from_now) const {
    return {.deadline = std::min(deadline, Clock::now() + from_now), .wake = wake};
  }
  bool is_late() const { return Clock::now() >= deadline; }
  bool is_woken() const;
};

// Fills what is ready of each. False: nothing was until then.
bool wait_for_any(std::span<pollfd> ready, const Until& until);

// Errc::io when it is late.
Status wait_for(int socket, short events, const Until& until);

// A connection's other end may be gone: writing to it is an error, and never ends the process.
class NoPipeSignal {
 public:
  NoPipeSignal() noexcept;
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t callers_;
  bool was_pending_ = false;
};

}  // namespace rota::page_store
