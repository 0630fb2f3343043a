#include "ops/attend/online_softmax.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace rota::ops {
namespace {

constexpr auto kNoLogits = [] {
  std::array<float, kKeyBlock> none{};
  none.fill(kNoLogit);
  return none;
}();

}  // namespace

void OnlineSoftmax::begin_tile(std::uint32_t vectors) noexcept {
  for (std::uint32_t i = 0; i < vectors; ++i) {
    max_logit_[i] = kNoLogit;
    output_[i] = outputs_ + std::size_t{i} * stride_;
    std::fill_n(exp_sum_[i], kPadFloats, 0.0F);
  }
  for (std::uint32_t i = 0; i < std::bit_ceil(vectors); ++i) {  // kernels may add nothing to more than there are
    std::fill_n(outputs_ + std::size_t{i} * stride_, stride_, 0.0F);
  }
}

void OnlineSoftmax::raise_max_logits(const QueryVectors& vectors) noexcept {
  for (std::uint32_t first = 0; first < vectors.count(); first += 4) {
    const float* logits[4];
    float max_logits[4];
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t i = vectors.one_of_four(first + j);
      logits[j] = vectors.sees_some(i) ? logits_[i] : kNoLogits.data();
      max_logits[j] = max_logit_[i];
    }
    simd_.max_of_four(logits, kKeyBlock, max_logits);
    for (std::uint32_t i = first; i < std::min(first + 4, vectors.count()); ++i) {
      const float max_logit = max_logits[i - first];
      if (max_logit == max_logit_[i]) continue;
      const float old_scale = std::exp2(max_logit_[i] - max_logit);
      max_logit_[i] = max_logit;
      simd_.scale(exp_sum_[i], old_scale, kPadFloats);
      simd_.scale(output(i), old_scale, stride_);
    }
  }
}

void OnlineSoftmax::weigh(const QueryVectors& vectors) noexcept {
  for (std::uint32_t i = 0; i < vectors.count(); ++i) {
    if (vectors.sees_some(i)) simd_.exponentiate(logits_[i], kKeyBlock, max_logit_[i], exp_sum_[i]);
  }
}

void OnlineSoftmax::write_partial(std::uint32_t i, float* partial) noexcept {
  partial[0] = max_logit_[i];
  partial[1] = simd_.sum_of(exp_sum_[i]);
  std::copy_n(output(i), stride_, partial + kPadFloats);
}

}  // namespace rota::ops
