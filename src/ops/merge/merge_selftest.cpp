#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "codec/dense/rows.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr std::array<double, 8> kFirstLogs{0, 1, -2, 30, 200, kNone, -7, kNone};
constexpr std::array<double, 8> kSecondLogs{0, 2, -5, 0, 0, 3, kNone, kNone};
constexpr std::uint64_t kRows = kFirstLogs.size();
constexpr Shape kShape{.tokens = 2, .heads = kRows / 2, .dim = 7};

struct Part {
  std::vector<float> outs, logs;
};

// Numbers between -2 and 2 that every dtype holds; NaN where there are no keys.
Part input(std::uint32_t state, std::span<const double, kRows> logs) {
  Part part{{}, std::vector<float>(logs.begin(), logs.end())};
  for (const double log : logs) {
    for (std::uint64_t d = 0; d < kShape.dim; ++d) {
      state = state * 1664525 + 1013904223;
      const float value = (static_cast<float>(state >> 26) - 32) / 16;
      part.outs.push_back(log == kNone ? std::numeric_limits<float>::quiet_NaN() : value);
    }
  }
  return part;
}

Result<MutView> upload(Device& device, DType dtype, const std::vector<float>& values, Shape shape) {
  std::vector<std::byte> bytes(values.size() * info(dtype).bytes);
  codec::row_converter(DType::f32, dtype)({reinterpret_cast<const std::byte*>(values.data())}, {bytes.data()},
                                          values.size());
  auto buffer = device.allocate(bytes.size());
  if (!buffer) return buffer.error();
  if (Status status = buffer->write(bytes); !status) return status.error();
  return MutView::token_major(*buffer, dtype, shape);
}

Status download(const MutView& view, std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * info(view.dtype).bytes);
  if (Status status = view.buffer.read(bytes); !status) return status;
  codec::row_converter(view.dtype, DType::f32)({bytes.data()}, {reinterpret_cast<std::byte*>(values.data())},
                                               values.size());
  return {};
}

// In the first part's place.
Result<Part> merged(Device& device, DType dtype) {
  Part first = input(1, kFirstLogs);
  const Part second = input(2, kSecondLogs);
  constexpr Shape kLogShape{.tokens = kShape.tokens, .heads = kShape.heads, .dim = 1};
  auto out = upload(device, dtype, first.outs, kShape);
  if (!out) return out.error();
  auto log = upload(device, dtype, first.logs, kLogShape);
  if (!log) return log.error();
  auto second_out = upload(device, dtype, second.outs, kShape);
  if (!second_out) return second_out.error();
  auto second_log = upload(device, dtype, second.logs, kLogShape);
  if (!second_log) return second_log.error();
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    merge(encoder, {.first = {*out, *log}, .second = {*second_out, *second_log}, .out = *out, .log_sum_exp = *log});
  });
  if (!done) return done.error();
  if (Status status = download(*out, first.outs); !status) return status.error();
  if (Status status = download(*log, first.logs); !status) return status.error();
  return first;
}

// By the definition, in f64.
struct Row {
  double first_weight, second_weight, whole, log;

  explicit Row(std::uint64_t row) {
    const double larger = std::fmax(kFirstLogs[row], kSecondLogs[row]);
    first_weight = kFirstLogs[row] == kNone ? 0 : std::exp(kFirstLogs[row] - larger);
    second_weight = kSecondLogs[row] == kNone ? 0 : std::exp(kSecondLogs[row] - larger);
    whole = first_weight + second_weight;
    log = whole == 0 ? kNone : larger + std::log(whole);
  }

  double merged(float first, float second) const {
    const double sum = (first_weight == 0 ? 0 : first_weight * static_cast<double>(first)) +
                       (second_weight == 0 ? 0 : second_weight * static_cast<double>(second));
    return whole == 0 ? 0 : sum / whole;
  }
};

Result<double> error_of(Device& device, DType dtype) {
  auto found = merged(device, dtype);
  if (!found) return found.error();
  const std::vector<float> first = input(1, kFirstLogs).outs;
  const std::vector<float> second = input(2, kSecondLogs).outs;
  std::vector<double> outs;
  std::vector<double> logs;
  for (std::uint64_t i = 0; i < kRows * kShape.dim; ++i) {
    const Row row(i / kShape.dim);
    outs.push_back(row.merged(first[i], second[i]));
    if (i % kShape.dim == 0) logs.push_back(row.log);
  }
  return std::max(runtime::largest_error(found->outs, outs), runtime::largest_error(found->logs, logs));
}

}  // namespace

void merge_selftest(runtime::SelfTestRun& run) {
  for (const DTypeInfo& dtype : kDTypes) {
    run.check(std::string(dtype.name), runtime::rounding_error(dtype.dtype) + 2e-6,
              [&] { return error_of(run.subject(), dtype.dtype); });
  }
}

}  // namespace rota::ops
