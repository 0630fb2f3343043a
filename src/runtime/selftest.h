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

// Records by record(Encoder&), submits and waits.
template <class Record>
Status run_on(Device& device, const Record& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  auto fence = std::move(encoder).submit();
  return fence ? fence->wait() : Status(fence.error());
}

// The share of bytes that differ.
double difference(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

// |found - wanted| / |wanted|, over all.
double relative_error(std::span<const float> found, std::span<const double> wanted) noexcept;

// The largest error of a value; of values above 1 as a share of them. NaN counts as infinite.
double largest_error(std::span<const float> found, std::span<const double> wanted) noexcept;

// What rounding to a type costs at most, relative to the value.
constexpr double rounding_error(DType dtype) noexcept {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// What an op's self-test is given, and what it found.
class SelfTestRun {
 public:
  SelfTestRun(std::string_view op, Device& subject, Device& reference) noexcept
      : op_(op), subject_(subject), reference_(reference) {}

  Device& subject() const noexcept { return subject_; }
  Device& reference() const noexcept { return reference_; }

  // One case; `measure` runs the op on the subject and returns its error.
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

// Every op's, in a table that the build makes from the folders of src/ops.
std::span<const SelfTest> self_tests() noexcept;

}  // namespace rota::runtime
