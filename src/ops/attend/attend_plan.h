#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "ops/attend/attend.h"
#include "ops/attend/key_range.h"

// Which keys a call looks at, in which ranges, and for which queries together.

namespace rota::ops {

inline constexpr std::string_view kAttend = "attend";

// One side of the view, as the checks and the plan see it.
struct StoredSide {
  std::string_view name;       // "kv.k"
  std::string_view sequences;  // "kv.k.sequences"
  const KvSideView& view;

  std::uint64_t page() const { return view.dense.shape.page_slots; }
  std::uint64_t heads() const { return view.dense.shape.heads; }
  std::uint64_t dim() const { return view.dense.shape.dim; }
  std::uint64_t sinks() const { return view.sinks ? view.sinks->shape.page_slots : 0; }
  core::Refusal refuse(std::string_view field, std::string_view subfield = {}) const {
    return {kAttend, {name, {}, field, subfield}};
  }
};

struct AttendSequence {
  std::uint64_t length, query_tokens, token;
  const KvPages& k;
  const KvPages& v;
};

// The first key that a query token sees, whether it is there or not.
inline std::uint64_t first_seen(const Attend& call, const AttendSequence& sequence, std::uint64_t query_token) {
  if (call.mask == Mask::none || !call.kv.window) return 0;
  const std::uint64_t end = sequence.length - sequence.query_tokens + query_token + 1;
  return end > *call.kv.window ? end - *call.kv.window : 0;
}

// Pages that a sequence needs, those that have left included.
inline std::uint64_t pages_wanted(const StoredSide& side, const KvPages& pages, std::uint64_t length) {
  const std::uint64_t slots = pages.ring.value_or(length);
  return slots == 0 ? 0 : (slots - 1) / side.page() + 1;
}

// A launch's partial results begin at multiples of it: a partial result is whole lines of 64 bytes, and a binding
// begins on 256. A round has a launch for each pair of sources, and for keys that are always seen.
inline constexpr std::uint64_t kPartialStep = runtime::kBindingAlignment / (kPadFloats * sizeof(float));
inline constexpr std::uint64_t kMostLaunches = 2 * kSources * kSources;

class AttendPlanner {
 public:
  AttendPlanner(const Attend& call, const StoredSide& k, const StoredSide& v, const runtime::Target& target);

  // Refuses what is too large for kernels as soon as it is.
  Status add(const AttendSequence& sequence);

  // Once, after the last sequence.
  void write(AttendPlan& plan);

 private:
  // Where a split's keys and values come from is said by its launch.
  struct SourcedSplit {
    KvSplit split;
    KeySource k, v;
    bool always_seen;

    bool is_like(const SourcedSplit& other) const noexcept {
      return k == other.k && v == other.v && always_seen == other.always_seen;
    }
  };
  // The query tiles of a sequence come to the same keys one after the other, while these are still in a cache.
  struct Turn {
    KeySource k, v;
    bool always_seen;
    std::uint32_t sequence;
    std::uint64_t key;
    std::uint32_t split;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };

  PlanSide add_side(const StoredSide& side, const KvPages& pages, std::uint64_t length);
  void add_splits(const AttendSequence& sequence, KeyRange keys, bool always_seen);
  std::uint64_t partials_of(const QueryTile& tile) const {
    return std::uint64_t{tile.splits} * k_.heads() * tile.vectors;
  }
  std::uint64_t partial_bytes() const { return partial_floats(static_cast<uint>(v_.dim())) * sizeof(float); }
  std::uint64_t sources_of(const QueryTile& tile) const;
  // At most, with what lies between launches.
  std::uint64_t partial_bytes(std::uint64_t partials, std::uint64_t launches) const {
    const std::uint64_t gaps = launches == 0 ? 0 : std::min(launches, kMostLaunches) - 1;
    return (partials + (kPartialStep - 1) * gaps) * partial_bytes();
  }
  std::uint64_t round_bytes() const;
  Status check_words() const;
  Status check_partials(const QueryTile& tile) const;
  void assign_rounds(AttendPlan& plan);
  void assign_launches(AttendPlan& plan);
  void add_to_launch(AttendRound& round, const Turn& turn);
  void write_words(AttendPlan& plan) const;

  const Attend& call_;
  const StoredSide& k_;
  const StoredSide& v_;
  const runtime::Target& target_;
  std::uint64_t most_vectors_, group_;
  std::vector<PlanSequence> sequences_;
  std::vector<std::uint32_t> page_tables_;
  std::vector<QueryTile> query_tiles_;
  std::vector<SourcedSplit> splits_;
  std::vector<std::uint32_t> turns_;  // numbers of splits, launch by launch
};

}  // namespace rota::ops
