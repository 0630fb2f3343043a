#include <cmath>

#include "runtime/selftest_pages.h"

namespace rota::ops {
namespace {

// What the tables promise of a normal variable, as a mean square; the values have a variance of 4/3.
double largest_error(std::uint32_t bits) {
  switch (bits) {
    case 2: return 4.0 / 3 * 0.1175;
    case 3: return 4.0 / 3 * 0.0346;
    case 4: return 4.0 / 3 * 0.00953;
    case 5: return 4.0 / 3 * 0.00252;
    case 6: return 4.0 / 3 * 0.000663;
    default: return 4.0 / 3 * 0.0000884;
  }
}

}  // namespace

void unseal_selftest(runtime::SelfTestRun& run) {
  for (const PageFormat& format : self_test_formats()) {
    run.check(self_test_name(format), largest_error(format.bits()), [&]() -> Result<double> {
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
