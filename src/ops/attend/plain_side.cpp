#include "ops/attend/plain_side.h"

#include <algorithm>

#include "codec/turbo/pack.h"

namespace rota::ops {

PlainRows::PlainRows(const SideMemory& memory) noexcept
    : memory_(memory), to_f32_(codec::row_converter(memory.dtype(), DType::f32)) {}

void PlainRows::begin_tile() noexcept {
  tile_ = ~std::uint64_t{0};
  if (!memory_.sealed()) return;
  for (std::uint32_t code = 0; code < 1U << memory_.bits(); ++code) {
    levels_[code] = static_cast<float>(memory_.level(code)) * kLevelScale;
  }
}

const float* PlainRows::read(const SequenceHead& of, std::uint64_t key, std::uint64_t count) noexcept {
  const std::uint32_t dim = memory_.dim();
  for (std::uint64_t i = 0; i < count; ++i) {
    float* const row = rows_ + i * memory_.padded_dim();
    if (memory_.sealed()) {
      unpack(of, key + i);
      const std::uint8_t* const codes = codes_ + (key + i) % kTileTokens * dim;
      for (std::uint32_t d = 0; d < dim; ++d) row[d] = levels_[codes[d]];
      const std::uint32_t scale = codec::load_half(memory_.scale(page_, key + i));
      token_scales_[i] = codec::finite_half(scale & ~kWithoutMean);
      with_mean_[i] = memory_.layout().has_mean != 0 && (scale & kWithoutMean) == 0;
    } else {
      to_f32_({memory_.row(of, key + i), memory_.dim_stride()}, {reinterpret_cast<std::byte*>(row), 1}, dim);
      token_scales_[i] = 1;
      with_mean_[i] = false;
    }
    std::fill(row + dim, row + memory_.padded_dim(), 0.0F);
  }
  return rows_;
}

void PlainRows::unpack(const SequenceHead& of, std::uint64_t key) noexcept {
  if (key / kTileTokens == tile_) return;
  tile_ = key / kTileTokens;
  page_ = memory_.page(of, key);
  codec::unpack_tile(memory_.layout(), memory_.sealed_slot(key) / kTileTokens, page_, codes_);
}

void PlainKeys::find_logits(const HeadBlock& block, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  const std::uint32_t stride = memory_.padded_dim();
  for (std::uint64_t key = block.keys.begin, count = 0; key < block.keys.end; key += count) {
    count = PlainRows::count(key, block.keys);
    const float* const rows = rows_.read(block.of, key, count);
    const float* const means = memory_.sealed() ? means_.products(vectors, block.of, key) : nullptr;
    for (std::uint64_t j = 0; j < count; ++j) {
      for (std::uint32_t i = 0; i < vectors.count(); ++i) {
        if (!vectors.seen(i).holds(key + j)) continue;
        const float* const query = memory_.sealed() ? vectors.rotated(i) : vectors.query(i);
        const float product = simd_.dot(query, rows + j * stride, stride) * rows_.token_scale(j);
        softmax.logits(i)[key + j - block.first()] =
            (product + (rows_.with_mean(j) ? means[i] : 0.0F)) * vectors.logit_scale(i);
      }
    }
  }
}

void PlainValues::add(const HeadBlock& block, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  softmax.weigh(vectors);
  const std::uint32_t stride = memory_.padded_dim();
  for (std::uint64_t key = block.keys.begin, count = 0; key < block.keys.end; key += count) {
    count = PlainRows::count(key, block.keys);
    const float* const rows = rows_.read(block.of, key, count);
    for (std::uint32_t i = 0; i < vectors.count(); ++i) {
      const float* const weights = softmax.logits(i);
      for (std::uint64_t j = 0; j < count; ++j) {
        if (!vectors.seen(i).holds(key + j)) continue;
        const float weight = weights[key + j - block.first()] * rows_.token_scale(j);
        simd_.add_scaled(softmax.output(i), rows + j * stride, weight, stride);
      }
    }
  }
}

}  // namespace rota::ops
