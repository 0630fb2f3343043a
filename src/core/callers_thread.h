#pragma once

#include <pthread.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cfenv>
#include <csignal>
#include <initializer_list>

// What a thread of the caller's own brings into the library, set aside for a while.

namespace rota::core {

// The default rounding, subnormals and traps while it lives; the caller's, and no flag raised, afterwards.
class DefaultFloats {
 public:
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

#if defined(__x86_64__)
  // All of our arithmetic is SSE's. Every recorded call comes here, and <cfenv> would take a fifth of its time.
  DefaultFloats() noexcept : callers_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloats() { _mm_setcsr(callers_); }

 private:
  static constexpr unsigned kDefault = 0x1f80;  // to nearest, subnormals as they are, no traps, no flags
  unsigned callers_;
#else
  DefaultFloats() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&callers_); }

 private:
  std::fenv_t callers_;
#endif
};

// Threads that are started meanwhile, by us or by a driver, leave the application's signals to the application's own
// threads. What a thread's own instruction raises is not blocked: crash handlers and debuggers want it.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_BLOCK, &blocked, &callers_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &callers_, nullptr); }

  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t callers_;
};

// A thread that is cancelled meanwhile goes on, and ends at its next cancellation point after the call: half-way
// through, its end would unwind what is noexcept, and the process with it.
class NoCancellation {
 public:
  NoCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &callers_); }
  ~NoCancellation() { pthread_setcancelstate(callers_, nullptr); }

  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int callers_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rota::core
