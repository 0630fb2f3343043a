#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/dense/rows.h"
#include "core/error.h"
#include "rota/ops.h"
#include "runtime/selftest.h"

namespace rota::ops {
namespace {

constexpr Shape kShape{.tokens = 4, .heads = 3, .dim = 44};
constexpr std::uint64_t kElements = kShape.tokens * kShape.heads * kShape.dim;
constexpr std::uint64_t kRopeDim = 40;
constexpr double kTheta = 1e4;
constexpr double kEpsilon = 1e-6;
constexpr std::array<std::int64_t, kShape.tokens> kPositions{0, 77, 1048576, 2147483647};

struct Case {
  DType dtype;
  Pairing pairing;
  bool normed;
};

std::vector<float> widened(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(kElements);
  codec::row_converter(dtype, DType::f32)({bytes.data()}, {reinterpret_cast<std::byte*>(values.data())}, kElements);
  return values;
}

// Numbers between -2 and 2 that every dtype holds.
std::vector<std::byte> input(DType dtype) {
  std::vector<float> values(kElements);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = (static_cast<float>(state >> 26) - 32) / 16;
  }
  std::vector<std::byte> bytes(kElements * info(dtype).bytes);
  codec::row_converter(DType::f32, dtype)({reinterpret_cast<const std::byte*>(values.data())}, {bytes.data()},
                                          kElements);
  return bytes;
}

// The definition, in f64.
std::vector<double> by_definition(const Case& what) {
  const std::vector<float> from = widened(input(what.dtype), what.dtype);
  std::vector<double> to(from.begin(), from.end());
  for (std::uint64_t row = 0; row < kShape.tokens * kShape.heads; ++row) {
    const std::span head(to.data() + row * kShape.dim, kShape.dim);
    double squares = 0;
    for (const double value : head) squares += value * value;
    const double scale = what.normed ? 1 / std::sqrt(squares / static_cast<double>(kShape.dim) + kEpsilon) : 1;
    for (double& value : head) value *= scale;
    for (std::uint64_t p = 0; p < kRopeDim / 2; ++p) {
      const double power = -2 * static_cast<double>(p) / static_cast<double>(kRopeDim);
      const double angle = static_cast<double>(kPositions[row / kShape.heads]) * std::pow(kTheta, power);
      double& first = head[what.pairing == Pairing::halves ? p : 2 * p];
      double& second = head[what.pairing == Pairing::halves ? p + kRopeDim / 2 : 2 * p + 1];
      const double turned = first * std::cos(angle) - second * std::sin(angle);
      second = first * std::sin(angle) + second * std::cos(angle);
      first = turned;
    }
  }
  return to;
}

Result<std::vector<float>> rotated(Device& device, const Case& what) {
  std::vector<std::byte> bytes = input(what.dtype);
  auto buffer = device.allocate(bytes.size());
  if (!buffer) return buffer.error();
  if (Status status = buffer->write(bytes); !status) return status.error();
  RopeTensor tensor = RopeTensor::in_place(MutView::token_major(*buffer, what.dtype, kShape));
  if (what.normed) tensor.norm = HeadNorm{.epsilon = kEpsilon};
  const Rotary rotary{.pairing = what.pairing, .theta = kTheta, .rope_dim = kRopeDim};
  const Status done = runtime::run_on(device, [&](Encoder& encoder) {
    rope(encoder, {.tensors = {&tensor, 1}, .positions = kPositions, .rotary = rotary});
  });
  if (!done) return done.error();
  if (Status status = buffer->read(bytes); !status) return status.error();
  return widened(bytes, what.dtype);
}

Result<double> error_of(Device& device, const Case& what) {
  auto found = rotated(device, what);
  if (!found) return found.error();
  return runtime::largest_error(*found, by_definition(what));
}

}  // namespace

void rope_selftest(runtime::SelfTestRun& run) {
  for (const DTypeInfo& dtype : kDTypes) {
    for (const Pairing pairing : {Pairing::halves, Pairing::interleaved}) {
      for (const bool normed : {false, true}) {
        run.check(core::text("{}, {}{}", dtype.name, pairing == Pairing::halves ? "halves" : "interleaved",
                             normed ? ", with norm" : ""),
                  runtime::rounding_error(dtype.dtype) + 1e-5,
                  [&] { return error_of(run.subject(), {dtype.dtype, pairing, normed}); });
      }
    }
  }
}

}  // namespace rota::ops
