#pragma once

#include "ops/attend/online_softmax.h"
#include "ops/attend/side_memory.h"

namespace rota::ops {

// Rows whose elements lie side by side, read as they are stored.
//
// Kernels prefetch four rows for each four that they read, one in each quarter of a block. Where blocks are not whole,
// the next one's rows are spread over the places that this one's prefetch, and what has no place follows afterwards.
class DenseRowsOfSide {
 public:
  explicit DenseRowsOfSide(const SideMemory& memory) noexcept : memory_(memory) {}

  void prefetch(const HeadBlock& first) noexcept;
  void advance(const BlockPair& blocks) noexcept;
  void prefetch_rest() const noexcept;

  // Of this block.
  DenseRows some(const KeyRange& keys) const noexcept {
    return {rows_.now().data(), whole_ ? rows_.next().data() : prefetches_.data(), keys.begin - first_,
            keys.end - first_, memory_.dim()};
  }

 private:
  void spread(const KeyRange& now, const HeadBlock& next) noexcept;
  std::uint64_t row_bytes() const noexcept { return std::uint64_t{memory_.dim()} * info(memory_.dtype()).bytes; }

  const SideMemory& memory_;
  std::uint64_t first_ = 0;
  PrefetchedBlocks<RowAddresses, &SideMemory::locate_rows> rows_;
  bool whole_ = true;        // both blocks
  RowAddresses prefetches_;  // otherwise
  // Of the next block, [row] in each quarter: those that it has, and from which one on they have no place.
  std::uint64_t next_first_ = 0, next_rows_ = 0, quarter_ = 0, placed_ = 0;
};

class DenseKeys {
 public:
  DenseKeys(const SideMemory& memory, const AttendSimd& simd) noexcept
      : memory_(memory), simd_(simd.dense), rows_(memory) {}

  void prefetch(const HeadBlock& first) noexcept { rows_.prefetch(first); }
  void begin_tile(const QueryVectors& vectors) noexcept {
    simd_.pack(vectors.queries(), vectors.count(), memory_.padded_dim(), packed_);
  }
  void find_logits(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  const SideMemory& memory_;
  const DenseSimd& simd_;
  DenseRowsOfSide rows_;
  alignas(64) float packed_[kCpuVectors * kMaxAttendDim];
};

class DenseValues {
 public:
  DenseValues(const SideMemory& memory, const AttendSimd& simd) noexcept
      : memory_(memory), simd_(simd.dense), rows_(memory) {}

  void prefetch(const HeadBlock& first) noexcept { rows_.prefetch(first); }
  void add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  const SideMemory& memory_;
  const DenseSimd& simd_;
  DenseRowsOfSide rows_;
};

}  // namespace rota::ops
