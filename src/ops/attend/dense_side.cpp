#include "ops/attend/dense_side.h"

namespace rota::ops {

void DenseKeys::find_logits(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  rows_.advance(blocks);
  const auto dot = simd_.dot[static_cast<std::size_t>(memory_.dtype())];
  dot(rows_.some(blocks.now.keys), {packed_, softmax.logits(), vectors.logit_scales(), vectors.count()});
}

// Values that a vector does not see may be NaN, and must not meet its weight of zero.
void DenseValues::add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  softmax.weigh(vectors);
  rows_.advance(blocks);
  const auto add = simd_.add[static_cast<std::size_t>(memory_.dtype())];
  const KeyRange first = vectors.seen_in_block(0);
  if (!first.empty() && vectors.see_alike()) {
    add(rows_.some(first), {softmax.logits(), softmax.outputs(), vectors.count()});
    return;
  }
  for (std::uint32_t i = 0; i < vectors.count(); ++i) {
    const KeyRange seen = vectors.seen_in_block(i);
    if (!seen.empty()) add(rows_.some(seen), {softmax.logits(i), softmax.outputs() + i, 1});
  }
}

}  // namespace rota::ops
