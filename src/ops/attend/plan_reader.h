#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attend/attend.params.h"

namespace rota::ops {

static_assert(sizeof(PlanHeader) == kPlanHeaderWords * sizeof(std::uint32_t));
static_assert(sizeof(PlanSide) == kPlanSideWords * sizeof(std::uint32_t));
static_assert(sizeof(PlanSequence) == kPlanSequenceWords * sizeof(std::uint32_t));
static_assert(sizeof(QueryTile) == kQueryTileWords * sizeof(std::uint32_t));
static_assert(sizeof(KvSplit) == kKvSplitWords * sizeof(std::uint32_t));

// The words of a plan as its structs: what plan.glsl is for GPUs.
class PlanReader {
 public:
  explicit PlanReader(const std::uint32_t* words) noexcept : words_(words) {}

  std::uint32_t word(std::uint32_t index) const noexcept { return words_[index]; }
  const PlanHeader& header() const noexcept { return at<PlanHeader>(0); }
  const PlanSequence& sequence(std::size_t index) const noexcept {
    return at<PlanSequence>(kPlanHeaderWords + index * kPlanSequenceWords);
  }
  const QueryTile& query_tile(std::size_t index) const noexcept {
    return at<QueryTile>(header().query_tiles + index * kQueryTileWords);
  }
  const KvSplit& kv_split(std::size_t index) const noexcept {
    return at<KvSplit>(header().splits + index * kKvSplitWords);
  }

 private:
  template <class Struct>
  const Struct& at(std::size_t word) const noexcept {
    return *reinterpret_cast<const Struct*>(words_ + word);
  }

  const std::uint32_t* words_;
};

}  // namespace rota::ops
