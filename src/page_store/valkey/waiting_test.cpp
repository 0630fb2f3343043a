#include "page_store/valkey/waiting.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace rota::page_store {
namespace {

using namespace std::chrono_literals;

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

TEST(ValkeyWaiting, WritingToWhoIsGoneRaisesNoSignal) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  close(ends[1]);
  {
    const NoPipeSignal quiet;
    EXPECT_EQ(write(ends[0], "x", 1), -1);  // ends the process without it
    EXPECT_EQ(errno, EPIPE);
  }
  EXPECT_FALSE(is_pending());
  close(ends[0]);
}

TEST(ValkeyWaiting, WaitsToTheDeadlineOrUntilItIsWoken) {
  std::array<int, 2> ends{}, wake{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  ASSERT_EQ(pipe(wake.data()), 0);
  Deadline begin = Clock::now();
  EXPECT_FALSE(wait_for(ends[0], POLLIN, {.deadline = begin + 50ms, .wake = wake[0]}).ok());
  EXPECT_GE(Clock::now() - begin, 50ms);
  ASSERT_EQ(write(wake[1], "x", 1), 1);
  begin = Clock::now();
  const Until woken{.deadline = begin + 10s, .wake = wake[0]};
  EXPECT_FALSE(wait_for(ends[0], POLLIN, woken).ok());
  EXPECT_TRUE(woken.is_woken());
  EXPECT_LT(Clock::now() - begin, 5s);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(wait_for(ends[0], POLLIN, {.deadline = Clock::now() + 10s}).ok());
  for (const int end : {ends[0], ends[1], wake[0], wake[1]}) close(end);
}

}  // namespace
}  // namespace rota::page_store
