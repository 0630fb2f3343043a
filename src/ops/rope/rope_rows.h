#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/dense/type_pairs.h"
#include "ops/rope/rope.h"

// What rope's code for one instruction set works on, and what it offers.

namespace rota::ops {

struct RopeScratch {
  // By pair, or for neighbours by coordinate.
  alignas(64) float cosine[kMaxHeadDim];
  alignas(64) float sine[kMaxHeadDim];
  alignas(64) float row[kMaxHeadDim];
  alignas(64) float weight[kMaxHeadDim];
};

// Pairs whose first coordinates lie side by side, and whose second ones do.
struct RopeRun {
  std::uint64_t pair, pairs, first, second;
};

struct RopeRow {
  const std::byte* from;
  std::byte* to;
  const std::byte* next_from;  // which are fetched meanwhile
  const std::byte* next_to;
};

// A call as the rows' code sees it.
struct RopeCall {
  const RopeParams& params;
  const std::uint32_t* positions;
  const std::uint32_t* pairs;
  std::uint32_t unit;
  bool several_axes;
  std::span<const RopeRun> runs;
};

struct RopeRows {
  using TurnRow = void (*)(const RopeCall&, const RopeScratch&, const RopeRow&) noexcept;

  void (*fill_turns)(const RopeCall&, std::uint64_t token, RopeScratch&) noexcept;
  std::array<float (*)(const std::byte* from, float* row, std::uint64_t dim) noexcept, kDTypes.size()> widen_and_square;
  void (*scale_row)(float* row, float scale, const float* weight, std::uint64_t dim) noexcept;
  codec::ByTypePair<TurnRow> turn_row;
};

}  // namespace rota::ops
