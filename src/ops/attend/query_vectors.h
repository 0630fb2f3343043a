#pragma once

#include <cstdint>

#include "ops/attend/attend.h"
#include "ops/attend/attend_kernels.h"
#include "ops/attend/key_blocks.h"

namespace rota::ops {

// The vectors of a query tile, asked of one kv head: where their queries are, what each sees, and how its products
// become logits.
class QueryVectors {
 public:
  QueryVectors(const AttendSplitParams& params, const float* queries, std::uint32_t stride) noexcept
      : p_(params), queries_(queries), stride_(stride) {}

  // Another thread may have written them, and a line takes as long from its cache as from memory.
  void prefetch(const QueryTile& tile, const SequenceHead& head, bool rotated) const noexcept;
  void begin_tile(const QueryTile& tile, const SequenceHead& head) noexcept;
  void begin_block(const HeadBlock& block) noexcept;

  std::uint32_t count() const noexcept { return count_; }
  const float* const* queries() const noexcept { return query_; }
  const float* query(std::uint32_t i) const noexcept { return query_[i]; }
  const float* rotated(std::uint32_t i) const noexcept { return rotated_[i]; }
  const float* logit_scales() const noexcept { return logit_scale_; }
  float logit_scale(std::uint32_t i) const noexcept { return logit_scale_[i]; }

  // Four at a time, the last one again where there are fewer.
  std::uint32_t one_of_four(std::uint32_t i) const noexcept { return i < count_ ? i : count_ - 1; }

  const KeyRange& seen(std::uint32_t i) const noexcept { return seen_[i]; }
  KeyRange seen_in_block(std::uint32_t i) const noexcept { return seen_[i].in(block_.keys); }
  bool sees_some(std::uint32_t i) const noexcept { return all_see_all_ || !seen_in_block(i).empty(); }
  bool see_alike() const noexcept;

  // Products with the keys of this block, [vector][kKeyBlock], become logits of what each vector sees, and kNoLogit.
  void finish_logits(float* logits) const noexcept;

 private:
  std::uint64_t heads() const noexcept { return std::uint64_t{p_.kv_heads} * p_.group; }
  // A vector of a tile as it came, and rotated.
  const float* plain_of(std::uint32_t vector, const SequenceHead& head) const noexcept {
    const std::uint64_t token = head.sequence->first_query_token + vector / p_.group;
    const std::uint64_t index = token * heads() + head.head * p_.group + vector % p_.group;
    return queries_ + query_header(static_cast<std::uint32_t>(heads())) + index * stride_;
  }
  const float* rotated_of(const float* plain) const noexcept { return plain + p_.tokens * heads() * stride_; }

  void prepare(std::uint32_t i, std::uint32_t vector, const SequenceHead& head) noexcept;

  // Whether logits are products and nothing else.
  bool is_plain(std::uint32_t i) const noexcept { return p_.soft_cap <= 0 && slope_[i] == 0; }
  float finish(float logit, std::uint32_t i, std::uint64_t key) const noexcept;

  const AttendSplitParams& p_;
  const float* const queries_;
  const std::uint32_t stride_;
  std::uint32_t count_ = 0;
  HeadBlock block_{};
  KeyRange seen_by_all_{};
  bool all_plain_ = false, all_see_all_ = false;
  const float* query_[kCpuVectors];
  const float* rotated_[kCpuVectors];
  float slope_[kCpuVectors];
  float logit_scale_[kCpuVectors];  // products times it are logits, or go into finish()
  std::int64_t position_[kCpuVectors];
  KeyRange seen_[kCpuVectors];
};

}  // namespace rota::ops
