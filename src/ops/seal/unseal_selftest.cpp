#include <cmath>

#include "core/error.h"
#include "runtime/selftest_pages.h"

namespace rota::ops {
namespace {

// What the tables promise of a normal variable; the values have a variance of 4/3.
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

Status unseal_selftest(Device& subject, Device& reference) {
  for (const PageFormat& format : self_test_formats()) {
    auto pages = self_test_sealed(reference, format);
    if (!pages) return pages.error();
    auto found = self_test_restored(subject, format, *pages);
    if (!found) return found.error();
    auto wanted = self_test_restored(reference, format, *pages);
    if (!wanted) return wanted.error();
    const std::uint32_t bits = format.codec.bits;
    if (*found != *wanted) {
      return Error{Errc::internal, core::text("unseal at {} bits, head size {}, differs between {} and {}", bits,
                                              std::uint32_t{format.head_dim}, subject.info().id, reference.info().id)};
    }
    const std::vector<float> values = self_test_values(format);
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      squares += std::pow(static_cast<double>(values[i]) - static_cast<double>((*found)[i]), 2);
    }
    const double error = squares / static_cast<double>(values.size());
    if (!(error < largest_error(bits))) {
      return Error{Errc::internal, core::text("unseal at {} bits errs by {:.2g} in the square, more than {:.2g}", bits,
                                              error, largest_error(bits))};
    }
  }
  return {};
}

}  // namespace rota::ops
