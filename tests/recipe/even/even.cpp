#include "codec/even/even.h"

#include <array>
#include <cmath>

#include "codec/refused.h"

namespace rota::codec {
namespace {

constexpr std::uint32_t kBits = 4, kLevels = 8;  // positive ones: 4, 12, ... 60
constexpr double kStep = 0.3352;                 // of the best even levels, in standard deviations: Max, 1960
constexpr double kUnit = kStep / 8;

}  // namespace

Status check(const Even& codec, const PageFormat& format) {
  if (codec.bits != kBits) return refused("codec.bits", std::uint32_t{codec.bits}, "{}", kBits);
  if (format.head_dim == 0 || format.head_dim % 16 != 0 || format.head_dim > ops::kMaxTurboDim) {
    return refused("head_dim", std::uint32_t{format.head_dim}, "a multiple of 16, at most {}", ops::kMaxTurboDim);
  }
  return {};
}

ops::RotationShape rotation_of(const Even& /*codec*/, std::uint32_t /*head_dim*/) noexcept { return {1, 0}; }

std::uint32_t scale_rule_of(const Even& /*codec*/) noexcept { return static_cast<std::uint32_t>(ScaleRule::search); }

Table table_of(const Even& /*codec*/, const PageFormat& format) noexcept {
  Table table{};
  constexpr std::array kCandidates{0.9, 1.0, 1.1};
  for (std::uint32_t c = 0; c < ops::kCandidates; ++c) {
    int exponent = 0;
    const double inverse = 2 * std::sqrt(static_cast<double>(format.head_dim)) / (kUnit * kCandidates[c]);
    table[ops::kInverses + 2 * c] = static_cast<std::uint32_t>(std::frexp(inverse, &exponent) * 0x1p32);
    table[ops::kInverses + 2 * c + 1] = static_cast<std::uint32_t>(32 - exponent);
  }
  for (std::uint32_t i = 0; i < kLevels; ++i) table[ops::kMagnitudes + i] = 8 * i + 4;
  for (std::uint32_t i = 0; i + 1 < kLevels; ++i) table[ops::kEdges + i] = 16 * (i + 1);
  return table;
}

double normal_error_of(const Even& /*codec*/) noexcept { return 0.0116; }

Description description_of(const Even& codec) noexcept {
  return {.codec = 200, .bits = codec.bits, .mean = codec.key_mean ? 1U : 0U};
}

void read(const Description& from, Even& codec) noexcept { codec = {.bits = from.bits, .key_mean = from.mean != 0}; }

}  // namespace rota::codec
