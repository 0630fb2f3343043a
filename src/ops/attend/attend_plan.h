#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "ops/attend/attend.h"

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

class AttendPlanner {
 public:
  AttendPlanner(const Attend& call, const StoredSide& k, const StoredSide& v, const runtime::Target& target);

  // Refuses what is too large for kernels as soon as it is.
  Status add(const AttendSequence& sequence);

  void write(AttendPlan& plan) const;

 private:
  struct KvSplit {
    std::uint64_t key, keys;
    KeySource k, v;
  };
  struct QueryTile {
    std::uint32_t sequence, first, vectors;
    std::vector<KvSplit> splits;
  };
  // The query tiles of a sequence come to the same keys one after the other, while these are still in a cache.
  struct Turn {
    std::uint32_t sequence;
    std::uint64_t key;
    std::uint32_t split;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };

  std::uint64_t add_page_table(const StoredSide& side, const KvPages& pages, std::uint64_t length);
  std::vector<KvSplit> splits_of(const AttendSequence& sequence, std::uint64_t begin, std::uint64_t end) const;
  std::uint64_t partials_of(const QueryTile& query_tile) const {
    return query_tile.splits.size() * k_.heads() * query_tile.vectors;
  }
  std::uint64_t partial_bytes() const { return partial_floats(static_cast<uint>(v_.dim())) * sizeof(float); }
  std::uint64_t round_bytes() const;
  Status check_words() const;
  Status check_partials(const QueryTile& query_tile) const;
  void write_rounds(AttendPlan& plan) const;

  const Attend& call_;
  const StoredSide& k_;
  const StoredSide& v_;
  const runtime::Target& target_;
  std::uint64_t most_vectors_, group_;
  std::uint64_t sequences_ = 0, splits_ = 0;
  std::vector<std::uint32_t> sequence_words_, page_tables_;
  std::vector<QueryTile> query_tiles_;
};

}  // namespace rota::ops
