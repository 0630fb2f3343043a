// Included by attend_cpu.cpp through core/for_each_isa.h. Rows are whole row steps, zero beyond their dims.

#include "codec/dense/lanes.h"

namespace rota::ops::ROTA_ISA {

namespace lanes = codec::ROTA_ISA;

ROTA_LANES_INLINE float sum_of(lanes::F32s v) noexcept {
  float sum = 0;
  for (std::uint64_t i = 0; i < lanes::kLanes; ++i) sum += v[i];
  return sum;
}

ROTA_LANES float dot(const float* a, const float* b, std::uint64_t dim) noexcept {
  lanes::F32s sum = {};
  for (std::uint64_t i = 0; i < dim; i += lanes::kLanes) {
    sum += lanes::load_bits<lanes::F32s>(a + i) * lanes::load_bits<lanes::F32s>(b + i);
  }
  return sum_of(sum);
}

ROTA_LANES void add_scaled(float* sum, const float* row, float factor, std::uint64_t dim) noexcept {
  for (std::uint64_t i = 0; i < dim; i += lanes::kLanes) {
    const lanes::F32s next = lanes::load_bits<lanes::F32s>(sum + i) + lanes::load_bits<lanes::F32s>(row + i) * factor;
    std::memcpy(sum + i, &next, sizeof(next));
  }
}

ROTA_LANES_INLINE lanes::F32s exp2_of(lanes::F32s x) noexcept {
  x = x < -126.0F ? lanes::F32s{} - 126.0F : x;
  const lanes::F32s shifted = x + 12582912.0F;  // 1.5 * 2^23: its last bits are the nearest integer
  const lanes::F32s rest = x - (shifted - 12582912.0F);
  lanes::F32s power = lanes::F32s{} + 1.5403530e-4F;
  power = power * rest + 1.3333558e-3F;
  power = power * rest + 9.6181291e-3F;
  power = power * rest + 5.5504109e-2F;
  power = power * rest + 2.4022651e-1F;
  power = power * rest + kLogOf2;
  power = power * rest + 1.0F;
  const auto exponent = lanes::same_bits<lanes::I32s>(shifted) << 23;
  return lanes::same_bits<lanes::F32s>(lanes::same_bits<lanes::I32s>(power) + exponent);
}

// logits to 2^(logit - top), in place; returns their sum. `count` is a multiple of the lanes, and what pads it
// kNoLogit.
ROTA_LANES float exponentiate(float* logits, std::uint64_t count, float top) noexcept {
  lanes::F32s sum = {};
  for (std::uint64_t i = 0; i < count; i += lanes::kLanes) {
    const auto logit = lanes::load_bits<lanes::F32s>(logits + i);
    lanes::F32s power = exp2_of(logit - top);
    power = logit - top < -125.0F ? lanes::F32s{} : power;
    std::memcpy(logits + i, &power, sizeof(power));
    sum += power;
  }
  return sum_of(sum);
}

inline constexpr AttendLanes kAttendLanes{dot, add_scaled, exponentiate};

}  // namespace rota::ops::ROTA_ISA
