#include "ops/attend/query_vectors.h"

#include <algorithm>
#include <cmath>

namespace rota::ops {

void QueryVectors::prefetch(const QueryTile& tile, const SequenceHead& head, bool rotated) const noexcept {
  constexpr std::uint32_t kMost = 8;  // of many the later ones arrive while the first ones are prepared
  const std::uint64_t bytes = stride_ * sizeof(float);
  for (std::uint32_t i = 0; i < std::min(tile.vectors, kMost); ++i) {
    const float* const plain = plain_of(tile.first_vector + i, head);
    prefetch_bytes(plain, bytes);
    if (rotated) prefetch_bytes(rotated_of(plain), bytes);
  }
}

void QueryVectors::begin_tile(const QueryTile& tile, const SequenceHead& head) noexcept {
  count_ = tile.vectors;
  seen_by_all_ = {0, ~std::uint64_t{0}};
  all_plain_ = true;
  for (std::uint32_t i = 0; i < count_; ++i) {
    prepare(i, tile.first_vector + i, head);
    seen_by_all_ = seen_by_all_.in(seen_[i]);
    all_plain_ = all_plain_ && is_plain(i);
  }
}

void QueryVectors::prepare(std::uint32_t i, std::uint32_t vector, const SequenceHead& head) noexcept {
  const PlanSequence& sequence = *head.sequence;
  const std::uint64_t query_token = vector / p_.group;
  const std::uint64_t query_head = head.head * p_.group + vector % p_.group;
  query_[i] = plain_of(vector, head);
  rotated_[i] = rotated_of(query_[i]);
  slope_[i] = queries_[query_head];
  logit_scale_[i] = is_plain(i) ? kLog2OfE : 1.0F;
  seen_[i] = {0, sequence.tokens};  // as far as ranges go
  if ((p_.flags & kCausal) != 0) {
    seen_[i].end = seen_[i].end - sequence.query_tokens + query_token + 1;
    const std::uint64_t end = seen_[i].end;
    if (p_.window != 0 && end > p_.window) seen_[i].begin = end - p_.window;
  }
  position_[i] = std::int64_t{sequence.tokens} - sequence.query_tokens + static_cast<std::int64_t>(query_token);
}

void QueryVectors::begin_block(const HeadBlock& block) noexcept {
  block_ = block;
  const std::uint64_t first = block.first();
  all_see_all_ = seen_by_all_.begin <= first && block.keys.begin == first &&
                 std::min(seen_by_all_.end, block.keys.end) == first + kKeyBlock;
}

bool QueryVectors::see_alike() const noexcept {
  const KeyRange first = seen_in_block(0);
  return std::all_of(seen_ + 1, seen_ + count_, [&](const KeyRange& seen) { return seen.in(block_.keys) == first; });
}

float QueryVectors::finish(float logit, std::uint32_t i, std::uint64_t key) const noexcept {
  if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
  if (slope_[i] != 0) logit -= slope_[i] * static_cast<float>(position_[i] - static_cast<std::int64_t>(key));
  return logit * kLog2OfE;
}

void QueryVectors::finish_logits(float* logits) const noexcept {
  if (all_see_all_ && all_plain_) return;
  const std::uint64_t first = block_.first();
  for (std::uint32_t i = 0; i < count_; ++i) {
    const KeyRange seen = seen_in_block(i);
    if (seen.empty()) continue;
    float* const of_vector = logits + std::size_t{i} * kKeyBlock;
    std::fill(of_vector, of_vector + (seen.begin - first), kNoLogit);
    std::fill(of_vector + (seen.end - first), of_vector + kKeyBlock, kNoLogit);
    if (is_plain(i)) continue;
    for (std::uint64_t key = seen.begin; key < seen.end; ++key) {
      of_vector[key - first] = finish(of_vector[key - first], i, key);
    }
  }
}

}  // namespace rota::ops
