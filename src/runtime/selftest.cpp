#include "runtime/selftest.h"

#include "core/error.h"
#include "rota/selftest.h"

namespace rota {

Result<std::vector<SelfTestResult>> self_test(Device& subject, Device& reference) {
  return core::guarded([&]() -> Result<std::vector<SelfTestResult>> {
    std::vector<SelfTestResult> results;
    for (const runtime::SelfTest& test : runtime::self_tests()) {
      results.push_back({std::string(test.op), core::guarded([&] { return test.run(subject, reference); })});
    }
    return results;
  });
}

}  // namespace rota
