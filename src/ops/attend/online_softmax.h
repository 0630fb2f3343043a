#pragma once

#include <cstdint>

#include "ops/attend/query_vectors.h"

namespace rota::ops {

// Softmax over keys that come a block at a time. After each block, for each vector and over all keys so far,
//   exp_sum = sum of 2^(logit - max_logit)    output = sum of 2^(logit - max_logit) * value
// where a larger max_logit rescales both. A vector that has seen no key yet has kNoLogit, and zeros.
class OnlineSoftmax {
 public:
  OnlineSoftmax(const AttendSimd& simd, std::uint32_t stride) noexcept : simd_(simd), stride_(stride) {}

  void begin_tile(std::uint32_t vectors) noexcept;

  // [vector][kKeyBlock]: products, then logits, then weights of the keys of this block.
  float* logits(std::uint32_t i = 0) noexcept { return logits_[i]; }

  // Logits of this block are known. NaN is no maximum, but stays in the sums.
  void raise_max_logits(const QueryVectors& vectors) noexcept;
  // They become weights, which are added to exp_sum. Who weighs in another way adds to it there.
  void weigh(const QueryVectors& vectors) noexcept;

  float max_logit(std::uint32_t i) const noexcept { return max_logit_[i]; }
  float* exp_sum(std::uint32_t i) noexcept { return exp_sum_[i]; }  // kPadFloats of them, added up at last
  float* const* outputs() const noexcept { return output_; }
  float* output(std::uint32_t i = 0) noexcept { return output_[i]; }
  std::uint32_t stride() const noexcept { return stride_; }

  // partial_floats() numbers.
  void write_partial(std::uint32_t i, float* partial) noexcept;

 private:
  const AttendSimd& simd_;
  const std::uint32_t stride_;  // of outputs
  float max_logit_[kCpuVectors];
  float* output_[kCpuVectors];
  alignas(64) float exp_sum_[kCpuVectors][kPadFloats];
  alignas(64) float logits_[kCpuVectors][kKeyBlock];
  alignas(64) float outputs_[kCpuVectors * kMaxAttendDim];
};

}  // namespace rota::ops
