#include <cmath>

#include "codec/codecs.h"
#include "ops/selftest_pages.h"

namespace rota::ops {
void unseal_selftest(runtime::SelfTestRun& run) {
  constexpr double kVariance = 4.0 / 3;  // of the values
  for (const PageFormat& format : self_test_formats()) {
    run.check(self_test_name(format), kVariance * codec::normal_error_of(format), [&]() -> Result<double> {
      auto pages = self_test_sealed(run.reference(), format);
      if (!pages) return pages.error();
      auto found = self_test_restored(run.subject(), format, *pages);
      if (!found) return found.error();
      auto wanted = self_test_restored(run.reference(), format, *pages);
      if (!wanted) return wanted.error();
      if (*found != *wanted) return 1;  // far above every bound: devices must agree
      const std::vector<float> values = self_test_values(format);
      double squares = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        squares += std::pow(static_cast<double>(values[i]) - static_cast<double>((*found)[i]), 2);
      }
      return squares / static_cast<double>(values.size());
    });
  }
}

}  // namespace rota::ops
