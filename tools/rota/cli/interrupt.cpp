#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace rota::tool {
namespace {

std::atomic<bool> asked_for_an_end = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal's handler may set it");
struct sigaction before;

}  // namespace

Interrupt::Interrupt() {
  asked_for_an_end = false;
  struct sigaction taken = {};
  taken.sa_handler = [](int) { asked_for_an_end = true; };
  taken.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the second finds what is usual
  sigaction(SIGINT, &taken, &before);
  if (before.sa_handler == SIG_IGN) sigaction(SIGINT, &before, nullptr);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &before, nullptr); }

bool Interrupt::asked() const noexcept { return asked_for_an_end; }

}  // namespace rota::tool
