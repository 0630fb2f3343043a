#include <gtest/gtest.h>

#include <thread>

#include "core/isa.h"
#include "harness/small_stack.h"
#include "rota/rota.h"

namespace rota::test {
namespace {

void expect_that_the_self_test_passes() {
  Device subject = Device::open({.device = "cpu", .threads = 3}).value();
  Device reference = Device::open({.device = "cpu", .threads = 1}).value();
  const auto results = self_test(subject, reference);
  ASSERT_TRUE(results.ok()) << results.error().message;
  for (const SelfTestResult& result : *results) {
    EXPECT_TRUE(result.status.ok()) << result.op << ", " << result.what << ": " << result.status.error().message;
  }
}

// Threads of the device, and the one that calls it.
TEST(SmallStack, IsEnoughForTheSelfTestOfEveryInstructionSet) {
  make_stacks_small();
  for (const core::Isa isa : core::kIsas) {
    if (!core::runs_here(isa)) continue;
    SCOPED_TRACE(core::name_of(isa));
    core::limit_isa(isa);
    std::thread(expect_that_the_self_test_passes).join();
  }
}

}  // namespace
}  // namespace rota::test
