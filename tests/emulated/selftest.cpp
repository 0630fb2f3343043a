#include <cstdio>
#include <exception>

#include "harness/small_stack.h"
#include "rota/rota.h"

// The library's self-test where there is no tool: on a CPU that need not be here, in threads with small stacks.

int main() {
  try {
    rota::test::make_stacks_small();
    rota::Device subject = rota::Device::open({.device = "cpu", .threads = 2}).value();
    rota::Device reference = rota::Device::open({.device = "cpu", .threads = 1}).value();
    std::printf("driver %s\n", subject.info().driver.c_str());
    int failed = 0;
    for (const rota::SelfTestResult& result : rota::self_test(subject, reference).value()) {
      if (result.status.ok()) continue;
      ++failed;
      std::printf("%s, %s: %s\n", result.op.c_str(), result.what.c_str(), result.status.error().message.c_str());
    }
    std::printf("%s\n", failed == 0 ? "works" : "FAILS");
    return failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
