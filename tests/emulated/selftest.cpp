#include <cstdio>
#include <exception>
#include <string>

#include "harness/small_stack.h"
#include "rota/rota.h"

// selftest [DEVICE]: the library's self-test where there is no tool, on a CPU that need not be here, in threads with
// small stacks. Of a device that is named it lists every case.

int main(int argc, char** argv) {
  try {
    rota::test::make_stacks_small();
    const bool lists = argc > 1;
    const std::string device = lists ? argv[1] : "cpu";
    rota::Device subject = rota::Device::open({.device = device, .threads = 2}).value();
    rota::Device reference = rota::Device::open({.device = "cpu", .threads = 1}).value();
    std::printf("driver %s\n", subject.info().driver.c_str());
    int failed = 0;
    for (const rota::SelfTestResult& result : rota::self_test(subject, reference).value()) {
      if (result.status.ok()) {
        if (lists) std::printf("%s works: %s, %s\n", device.c_str(), result.op.c_str(), result.what.c_str());
        continue;
      }
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
