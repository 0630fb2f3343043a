#include "runtime/selftest.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/callers_thread.h"
#include "core/error.h"

namespace rota::runtime {

double difference(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  if (a.size() != b.size()) return 1;
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1U : 0U;
  return a.empty() ? 0 : static_cast<double>(different) / static_cast<double>(a.size());
}

double relative_error(std::span<const float> found, std::span<const double> wanted) noexcept {
  double error = 0;
  double whole = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
    whole += wanted[i] * wanted[i];
  }
  return std::sqrt(error / whole);
}

double largest_error(std::span<const float> found, std::span<const double> wanted) noexcept {
  double largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto value = static_cast<double>(found[i]);
    if (value == wanted[i]) continue;  // infinite ones, too
    const double error = std::fabs(value - wanted[i]) / std::fmax(1, std::fabs(wanted[i]));
    largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::fmax(largest, error);
  }
  return largest;
}

void SelfTestRun::check(std::string what, double bound, const std::function<Result<double>()>& measure) {
  SelfTestResult result{.op = std::string(op_), .what = std::move(what), .bound = bound};
  const Result<double> error = core::guarded(measure);
  if (!error) {
    result.status = error.error();
  } else {
    result.error = *error;
    if (!(*error <= bound)) {  // NaN is wrong, too
      result.status = Error{Errc::internal, core::text("{} of {} is off by {:.3} on {}; wanted at most {:.3}", op_,
                                                       result.what, *error, subject_.info().id, bound)};
    }
  }
  results_.push_back(std::move(result));
}

}  // namespace rota::runtime

namespace rota::inline ROTA_ABI {

Result<std::vector<SelfTestResult>> self_test(Device& subject, Device& reference) {
  return core::guarded([&]() -> Result<std::vector<SelfTestResult>> {
    const core::DefaultFloats floats;
    std::vector<SelfTestResult> results;
    for (const runtime::SelfTest& test : runtime::self_tests()) {
      runtime::SelfTestRun run(test.op, subject, reference);
      test.run(run);
      std::ranges::move(run.results(), std::back_inserter(results));
    }
    return results;
  });
}

}  // namespace rota::inline ROTA_ABI
