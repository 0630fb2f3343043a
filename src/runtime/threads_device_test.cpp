#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "harness/environment.h"
#include "harness/on_device.h"

// What the library's threads, and the driver's, do to an application's.

namespace rota::test {
namespace {

class Threads : public OnDevice {
 public:
  using OnDevice::open_another;

 protected:
  static std::set<std::string> tasks() {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) found.insert(entry.path());
    return found;
  }

  // How many there are. One that was joined may be there for a moment longer, and is waited for.
  static std::size_t steady_tasks() {
    std::size_t found = tasks().size();
    for (int same = 0; same < 20;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::size_t now = tasks().size();
      same = now == found ? same + 1 : 0;
      found = now;
    }
    return found;
  }
  static std::size_t tasks_at_last(std::size_t wanted) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::size_t found = tasks().size();
    while (found != wanted && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      found = tasks().size();
    }
    return found;
  }

  // A bit per signal, from 1 on; all where the thread has ended meanwhile.
  static std::uint64_t blocked_in(const std::string& task) {
    std::ifstream file(task + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
    }
    return ~std::uint64_t{0};
  }

  // The C library blocks every signal in a thread until it has begun, and a machine that is busy may let it wait.
  static std::uint64_t blocked_once_begun_in(const std::string& task) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::uint64_t blocked = blocked_in(task);
    while ((blocked & bit(SIGSEGV)) != 0 && std::chrono::steady_clock::now() < patience) {
      usleep(1'000);
      blocked = blocked_in(task);
    }
    return blocked;
  }

  static constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }
};

// It runs something, too: some threads of drivers start late.
TEST_F(Threads, BlockSignalsButWhatTheirInstructionsRaise) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  const std::set<std::string> before = tasks();
  Device opened = open_another();
  const Buffer words = opened.allocate(256).value();
  const Buffer sums = opened.allocate(256).value();
  const WordRange range{words, 0, 256};
  ASSERT_OK(run_on(opened, [&](Encoder& encoder) { checksum(encoder, {.of = {&range, 1}, .sums = sums}); }));

  std::size_t ours = 0;
  for (const std::string& task : tasks()) {
    if (before.contains(task)) continue;
    ++ours;
    const bool is_cpu = opened.info().kind == DeviceKind::cpu;
    const std::uint64_t blocked = is_cpu ? blocked_once_begun_in(task) : blocked_in(task);
    for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCHLD, SIGPIPE, SIGPROF,
                             SIGWINCH, SIGIO, SIGABRT, SIGRTMIN, SIGRTMAX}) {
      EXPECT_NE(blocked & bit(signal), 0U) << task << " would take signal " << signal;
    }
    if (!is_cpu) continue;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      EXPECT_EQ(blocked & bit(signal), 0U) << task << " hides signal " << signal;
    }
  }
  if (opened.info().kind == DeviceKind::cpu) {
    EXPECT_EQ(ours, std::max(opened.info().threads - 1, 1U)) << "the one that waits is the other";
  }
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    EXPECT_EQ(sigismember(&after, signal), sigismember(&mask, signal)) << "the caller's own signal " << signal;
  }
}

volatile sig_atomic_t handled = 0;

// As a server does it: blocked in every thread of its own, and taken when there is time.
TEST_F(Threads, TakeNoSignalOfTheProcess) {
  struct sigaction count{}, callers{};
  count.sa_handler = [](int) { handled = 1; };
  ASSERT_EQ(sigaction(SIGUSR1, &count, &callers), 0);
  sigset_t mask;
  sigset_t callers_mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  const Device opened = open_another();
  pthread_sigmask(SIG_BLOCK, &mask, &callers_mask);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  usleep(50'000);
  EXPECT_EQ(handled, 0);
  const std::timespec patience{.tv_sec = 5, .tv_nsec = 0};
  EXPECT_EQ(sigtimedwait(&mask, nullptr, &patience), SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &callers_mask, nullptr);
  sigaction(SIGUSR1, &callers, nullptr);
}

// Deferred, as cancellation is unless asked otherwise: every call that waits would be a place to end at.
TEST_F(Threads, ACancelledOneEndsAfterItsCallsAndLeavesTheProcessAlive) {
  struct Shared {
    Threads& test;
    std::optional<Fence> fence;
    bool called = false;
  } shared{*this, {}};
  pthread_t waiter;
  const auto wait = [](void* erased) -> void* {
    auto& [test, fence, called] = *static_cast<Shared*>(erased);
    pthread_cancel(pthread_self());
    Device opened = test.open_another();
    const Buffer words = opened.allocate(4U << 20).value();
    const Buffer sums = opened.allocate(4096).value();
    const std::vector<WordRange> ranges(16, {words, 0, words.size_bytes()});
    const auto submit = [&] {
      Encoder encoder = opened.encoder();
      checksum(encoder, {.of = ranges, .sums = sums});
      return std::move(encoder).submit().value();
    };
    EXPECT_OK(submit().wait());
    fence = submit();
    called = true;
    pthread_testcancel();
    ADD_FAILURE() << "the cancellation was lost";
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&waiter, nullptr, wait, &shared), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(waiter, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(shared.called);
  EXPECT_OK(shared.fence.value().wait());
}

// The last handle waits, and joins the library's threads.
TEST_F(Threads, ACancelledOneMayDropTheLastHandle) {
  pthread_t dropper;
  const auto drop = [](void* erased) -> void* {
    auto& test = *static_cast<Threads*>(erased);
    pthread_cancel(pthread_self());
    {
      Device opened = test.open_another();
      const Buffer words = opened.allocate(4U << 20).value();
      const Buffer sums = opened.allocate(4096).value();
      const std::vector<WordRange> ranges(16, {words, 0, words.size_bytes()});
      Encoder encoder = opened.encoder();
      checksum(encoder, {.of = ranges, .sums = sums});
      EXPECT_OK(std::move(encoder).submit());
    }
    pthread_testcancel();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&dropper, nullptr, drop, this), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(dropper, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

// A GPU's driver takes a while to open, and what it leaks is its own.
TEST_F(Threads, OfDevicesThatWereClosedAreGone) {
  const bool cpu = device.info().kind == DeviceKind::cpu;
  const int devices = cpu && !kSanitized ? 1000 : 20;
  const auto open_and_use = [&] {
    Device opened = open_another();
    const Buffer buffer = opened.allocate(64).value();
    const std::uint64_t word = 7;
    Buffer(buffer).write(std::as_bytes(std::span(&word, 1))).value();
  };
  open_and_use();
  const std::size_t tasks_before = steady_tasks();
  const auto heap_before = static_cast<std::int64_t>(mallinfo2().uordblks);
  for (int i = 0; i < devices; ++i) open_and_use();
  EXPECT_EQ(tasks_at_last(tasks_before), tasks_before);
  if (cpu && !kSanitized) {
    EXPECT_LT(static_cast<std::int64_t>(mallinfo2().uordblks) - heap_before, devices * 16) << "bytes that stay";
  }

  std::vector<std::thread> openers;
  for (int i = 0; i < 8; ++i) {
    openers.emplace_back([&] {
      for (int round = 0; round < devices / 20; ++round) open_and_use();
    });
  }
  for (std::thread& opener : openers) opener.join();
  EXPECT_EQ(tasks_at_last(tasks_before), tasks_before);
}

}  // namespace
}  // namespace rota::test
