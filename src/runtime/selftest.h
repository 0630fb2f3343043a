#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rota/device.h"
#include "rota/dtype.h"
#include "rota/encoder.h"
#include "rota/selftest.h"

namespace rota::runtime {

// Records with record(Encoder&), submits and waits.
template <class Record>
Status run_on(Device& device, const Record& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  auto fence = std::move(encoder).submit();
  return fence ? fence->wait() : Status(fence.error());
}

// The share of bytes that differ, 0 to 1; 1 for different sizes.
double difference(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

// |found - wanted| / |wanted|, as vectors.
double relative_error(std::span<const float> found, std::span<const double> wanted) noexcept;

// The largest error of a value, relative for values above 1, else absolute. NaN is an infinite error.
double largest_error(std::span<const float> found, std::span<const double> wanted) noexcept;

// The largest relative error of rounding to a type.
constexpr double rounding_error(DType dtype) noexcept {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// The devices of an op's self-test, and its results.
class SelfTestRun {
 public:
  SelfTestRun(std::string_view op, Device& subject, Device& reference) noexcept
      : op_(op), subject_(subject), reference_(reference) {}

  Device& subject() const noexcept { return subject_; }
  Device& reference() const noexcept { return reference_; }

  // Tests one case. measure() runs the op on the subject and returns the error, which must not exceed `bound`.
  void check(std::string what, double bound, const std::function<Result<double>()>& measure);

  std::vector<SelfTestResult>& results() noexcept { return results_; }

 private:
  std::string_view op_;
  Device& subject_;
  Device& reference_;
  std::vector<SelfTestResult> results_{};
};

struct SelfTest {
  std::string_view op;
  void (*run)(SelfTestRun& run);
};

// The self-tests of all ops. The build makes the table from the folders of src/ops.
std::span<const SelfTest> self_tests() noexcept;

}  // namespace rota::runtime
