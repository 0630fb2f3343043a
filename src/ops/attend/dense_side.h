#pragma once

#include "ops/attend/online_softmax.h"
#include "ops/attend/side_memory.h"

namespace rota::ops {

// Rows whose elements lie side by side, read as they are stored.
class DenseRowsOfSide {
 public:
  explicit DenseRowsOfSide(const SideMemory& memory) noexcept : memory_(memory) {}

  void advance(const BlockPair& blocks) noexcept {
    first_ = blocks.now.first();
    rows_.advance(blocks, [&](const HeadBlock& block, RowAddresses& rows) { memory_.locate_rows(block, rows); });
  }
  // Of this block.
  DenseRows some(const KeyRange& keys) const noexcept {
    return {rows_.now().data(), rows_.next().data(), keys.begin - first_, keys.end - first_, memory_.dim()};
  }

 private:
  const SideMemory& memory_;
  std::uint64_t first_ = 0;
  PrefetchedBlocks<RowAddresses> rows_;
};

class DenseKeys {
 public:
  DenseKeys(const SideMemory& memory, const AttendSimd& simd) noexcept
      : memory_(memory), simd_(simd.dense), rows_(memory) {}

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

  void add(const BlockPair& blocks, const QueryVectors& vectors, OnlineSoftmax& softmax) noexcept;

 private:
  const SideMemory& memory_;
  const DenseSimd& simd_;
  DenseRowsOfSide rows_;
};

}  // namespace rota::ops
