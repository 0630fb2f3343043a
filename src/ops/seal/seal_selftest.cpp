#include "ops/selftest_pages.h"

namespace rota::ops {

void seal_selftest(runtime::SelfTestRun& run) {
  for (const PageFormat& format : self_test_formats()) {
    run.check(self_test_name(format), 0, [&]() -> Result<double> {
      auto found = self_test_sealed(run.subject(), format);
      if (!found) return found.error();
      auto wanted = self_test_sealed(run.reference(), format);
      if (!wanted) return wanted.error();
      return runtime::difference(*found, *wanted);
    });
  }
}

}  // namespace rota::ops
