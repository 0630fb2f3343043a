#include "ops/attend/dense_side.h"

#include <algorithm>
#include <span>

namespace rota::ops {

void DenseRowsOfSide::prefetch(const HeadBlock& first) noexcept {
  const RowAddresses* const rows = rows_.begin(memory_, first);
  if (rows == nullptr) return;
  const auto all = std::span(*rows).subspan(first.keys.begin - first.first(), first.keys.end - first.keys.begin);
  const std::byte* from = all.front();
  for (std::size_t row = 0; row < all.size(); ++row) {  // those that follow each other at once
    const std::byte* const to = all[row] + row_bytes();
    if (row + 1 < all.size() && all[row + 1] == to) continue;
    prefetch_bytes(from, static_cast<std::uint64_t>(to - from));
    if (row + 1 < all.size()) from = all[row + 1];
  }
}

void DenseRowsOfSide::advance(const BlockPair& blocks) noexcept {
  first_ = blocks.now.first();
  rows_.advance(memory_, blocks);
  const auto is_whole = [](const KeyRange& keys) { return keys.end - keys.begin == kKeyBlock; };
  whole_ = is_whole(blocks.now.keys) && is_whole(blocks.next.keys);
  if (!whole_) spread(blocks.now.keys, blocks.next);
}

void DenseRowsOfSide::spread(const KeyRange& now, const HeadBlock& next) noexcept {
  next_first_ = next.keys.begin - next.first();
  next_rows_ = next.keys.end - next.keys.begin;
  quarter_ = (next_rows_ + 3) / 4;
  const std::uint64_t first = (now.begin - first_) / 4;
  placed_ = (now.end - first_ + 3) / 4 - first;
  for (std::uint64_t i = 0; i < placed_; ++i) {
    for (std::uint64_t nth = 0; nth < 4; ++nth) {
      const std::uint64_t row = std::min(nth * quarter_ + std::min(i, quarter_ - 1), next_rows_ - 1);
      prefetches_[nth * (kKeyBlock / 4) + first + i] = rows_.next()[next_first_ + row];
    }
  }
}

void DenseRowsOfSide::prefetch_rest() const noexcept {
  if (whole_) return;
  for (std::uint64_t i = placed_; i < quarter_; ++i) {
    for (std::uint64_t row = i; row < next_rows_; row += quarter_) {
      prefetch_bytes(rows_.next()[next_first_ + row], row_bytes());
    }
  }
}

void DenseKeys::find_logits(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  rows_.advance(blocks);
  const auto dot = simd_.dot[static_cast<std::size_t>(memory_.dtype())];
  dot(rows_.some(blocks.now.keys), {packed_, softmax.logits(), vectors.logit_scales(), vectors.count()});
  rows_.prefetch_rest();
}

// Values that a vector does not see may be NaN, and must not meet its weight of zero.
void DenseValues::add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept {
  softmax.weigh(vectors);
  rows_.advance(blocks);
  const auto add = simd_.add[static_cast<std::size_t>(memory_.dtype())];
  const KeyRange first = vectors.seen_in_block(0);
  if (!first.empty() && vectors.see_alike()) {
    add(rows_.some(first), {softmax.logits(), softmax.outputs(), vectors.count()});
  } else {
    for (std::uint32_t i = 0; i < vectors.count(); ++i) {
      const KeyRange seen = vectors.seen_in_block(i);
      if (!seen.empty()) add(rows_.some(seen), {softmax.logits(i), softmax.outputs() + i, 1});
    }
  }
  rows_.prefetch_rest();
}

}  // namespace rota::ops
