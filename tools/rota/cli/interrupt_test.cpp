#include "cli/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace {

using rota::tool::Interrupt;

void interrupt_twice() {
  std::signal(SIGINT, SIG_DFL);
  const Interrupt interrupt;
  if (interrupt.asked()) std::exit(1);
  std::raise(SIGINT);
  if (!interrupt.asked()) std::exit(2);
  std::raise(SIGINT);
  std::exit(3);
}

TEST(Interrupt, TheFirstAsksAndTheSecondEnds) { EXPECT_EXIT(interrupt_twice(), testing::KilledBySignal(SIGINT), ""); }

TEST(Interrupt, LeavesWhatWasBefore) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    const Interrupt interrupt;
    std::raise(SIGINT);
    EXPECT_FALSE(interrupt.asked()) << "ignored by whoever started it";
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
  {
    const Interrupt interrupt;
  }
  EXPECT_EQ(std::signal(SIGINT, before), SIG_DFL);
}

}  // namespace
