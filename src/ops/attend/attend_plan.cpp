#include "ops/attend/attend_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace rota::ops {
namespace {

constexpr std::uint64_t kScratchBytes = std::uint64_t{128}
                                        << 20;  // of partial results, unless one query tile needs more

bool is_cpu(const runtime::Target& target) { return target.limits.shared_memory_bytes == 0; }

KeySource source_of(const StoredSide& side, const KvPages& pages, std::uint64_t position) {
  if (pages.sinks && position < side.sinks()) return KeySource::sinks;
  return position < pages.sealed_pages * side.page() ? KeySource::sealed : KeySource::dense;
}

// KV splits end at multiples of it. On one device a function of the position alone, so that queries of other sequences,
// later tokens and other query tokens change nothing; it grows, because every split costs a partial result. A CPU has
// few cores.
std::uint64_t split_keys(const runtime::Target& target, std::uint64_t position) {
  constexpr std::uint64_t kSplitsPerOctave = 16;
  const std::uint64_t first = is_cpu(target) ? 2048 : 512;
  return std::clamp(std::bit_floor(position) / kSplitsPerOctave, first, std::uint64_t{4096});
}

// Where a range that begins at `position` must end for the sake of one side.
std::uint64_t next_cut(const StoredSide& side, const KvPages& pages, std::uint64_t position) {
  switch (source_of(side, pages, position)) {
    case KeySource::sinks: return side.sinks();
    case KeySource::sealed: return pages.sealed_pages * side.page();
    case KeySource::dense: return ~std::uint64_t{0};
  }
  return ~std::uint64_t{0};
}

struct KeyRange {
  std::uint64_t begin, end;
};

// The keys that are there.
KeyRange kept(const AttendSequence& sequence, const StoredSide& k, const StoredSide& v) {
  std::uint64_t first = 0;
  for (const auto& [side, pages] : {std::pair(&k, &sequence.k), std::pair(&v, &sequence.v)}) {
    first = std::max(first, pages->first_page * side->page());
    if (pages->ring && sequence.length > *pages->ring) first = std::max(first, sequence.length - *pages->ring);
  }
  return {first, sequence.length};
}

// The keys that a query token sees.
KeyRange seen(const Attend& call, const AttendSequence& sequence, const KeyRange& all, std::uint64_t query_token) {
  if (call.mask == Mask::none) return all;
  return {std::max(all.begin, first_seen(call, sequence, query_token)),
          sequence.length - sequence.query_tokens + query_token + 1};
}

}  // namespace

std::uint32_t most_vectors(const runtime::Target& target, std::uint64_t k_dim, std::uint64_t v_dim) noexcept {
  if (is_cpu(target)) return kCpuVectors;
  // More shared memory than this leaves a GPU too few workgroups at a time to hide its memory's latency, and a lane
  // with more columns of values has registers for fewer vectors.
  const std::uint64_t room = std::min<std::uint64_t>(target.limits.shared_memory_bytes, 32U << 10);
  std::uint32_t vectors = kGpuVectors;
  const auto fits = [&] {
    return attend_shared_bytes(vectors, static_cast<uint>(k_dim)) <= room &&
           vectors * v_dim <= std::uint64_t{kGpuVectors} * 4 * kAttendGroupSize;
  };
  while (vectors > 1 && !fits()) vectors /= 2;
  return vectors;
}

AttendPlanner::AttendPlanner(const Attend& call, const StoredSide& k, const StoredSide& v,
                             const runtime::Target& target)
    : call_(call),
      k_(k),
      v_(v),
      target_(target),
      most_vectors_(most_vectors(target, k.dim(), v.dim())),
      group_(call.q.shape.heads / k.heads()) {}

// The plan's word with the physical page of logical page 0, or where it would be: pages that have left are not in the
// list.
std::uint64_t AttendPlanner::add_page_table(const StoredSide& side, const KvPages& pages, std::uint64_t length) {
  const std::uint64_t at = page_tables_.size();
  const auto count = static_cast<std::ptrdiff_t>(pages_wanted(side, pages, length) - pages.first_page);
  page_tables_.insert(page_tables_.end(), pages.page_table.begin(), pages.page_table.begin() + count);
  return at - pages.first_page;  // may pass below zero, as a word that wraps
}

std::vector<AttendPlanner::KvSplit> AttendPlanner::splits_of(const AttendSequence& sequence, std::uint64_t begin,
                                                             std::uint64_t end) const {
  std::vector<KvSplit> splits;
  for (std::uint64_t at = begin; at < end; at += splits.back().keys) {
    const std::uint64_t split = split_keys(target_, at);
    const std::uint64_t stop = std::min(
        {end, core::round_down(at, split) + split, next_cut(k_, sequence.k, at), next_cut(v_, sequence.v, at)});
    splits.push_back({at, stop - at, source_of(k_, sequence.k, at), source_of(v_, sequence.v, at)});
  }
  return splits;
}

Status AttendPlanner::add(const AttendSequence& sequence) {
  const std::uint64_t vectors = sequence.query_tokens * group_;
  const auto sequence_index = static_cast<std::uint32_t>(sequences_++);
  const KeyRange all = kept(sequence, k_, v_);
  for (const std::uint64_t word :
       {sequence.length, sequence.query_tokens, sequence.token, all.begin,
        add_page_table(k_, sequence.k, sequence.length), add_page_table(v_, sequence.v, sequence.length),
        sequence.k.ring.value_or(0), sequence.v.ring.value_or(0), std::uint64_t{sequence.k.sinks.value_or(0)},
        std::uint64_t{sequence.v.sinks.value_or(0)}}) {
    sequence_words_.push_back(static_cast<std::uint32_t>(word));
  }
  if (Status status = check_words(); !status) return status;
  for (std::uint64_t first = 0; first < vectors; first += most_vectors_) {
    const std::uint64_t count = std::min<std::uint64_t>(most_vectors_, vectors - first);
    const std::uint64_t begin = seen(call_, sequence, all, first / group_).begin;
    const std::uint64_t end = seen(call_, sequence, all, (first + count - 1) / group_).end;
    QueryTile query_tile{sequence_index, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count),
                         splits_of(sequence, begin, end)};
    splits_ += query_tile.splits.size();
    query_tiles_.push_back(std::move(query_tile));
    if (Status status = core::first_error({check_words(), check_partials(query_tiles_.back())}); !status) return status;
  }
  return {};
}

std::uint64_t AttendPlanner::round_bytes() const {
  return std::min(kScratchBytes, core::round_down(target_.limits.max_binding_bytes, runtime::kBindingAlignment));
}

Status AttendPlanner::check_words() const {
  const std::uint64_t words = kPlanSequences + sequence_words_.size() + page_tables_.size() +
                              query_tiles_.size() * kQueryTileWords + splits_ * (kSplitWords + 1);
  const std::uint64_t bytes = words * sizeof(std::uint32_t);
  return runtime::check_upload(target_, bytes,
                               [&] { return core::text("{}: a plan takes at least {} bytes", kAttend, bytes); });
}

Status AttendPlanner::check_partials(const QueryTile& query_tile) const {
  const std::uint64_t bytes = partials_of(query_tile) * partial_bytes();
  return runtime::check_upload(target_, bytes, [&] {
    return core::text("{}: partial results of {} query vectors take {} bytes", kAttend, k_.heads() * query_tile.vectors,
                      bytes);
  });
}

void AttendPlanner::write(AttendPlan& plan) const {
  for (const QueryTile& query_tile : query_tiles_) plan.vectors = std::max(plan.vectors, query_tile.vectors);
  plan.words = {0, 0};
  plan.words.insert(plan.words.end(), sequence_words_.begin(), sequence_words_.end());
  const auto tables = static_cast<std::uint32_t>(plan.words.size());
  for (std::size_t at = kPlanSequences; at < tables; at += kSequenceWords) {
    plan.words[at + kSequencePageTable] += tables;
    plan.words[at + kSequencePageTable + 1] += tables;
  }
  plan.words.insert(plan.words.end(), page_tables_.begin(), page_tables_.end());
  plan.words[kPlanQueryTiles] = static_cast<std::uint32_t>(plan.words.size());
  std::uint32_t splits = 0;
  for (const QueryTile& query_tile : query_tiles_) {
    const auto count = static_cast<std::uint32_t>(query_tile.splits.size());
    for (const std::uint32_t word : {query_tile.sequence, query_tile.first, query_tile.vectors, splits, count}) {
      plan.words.push_back(word);
    }
    splits += count;
  }
  plan.words[kPlanSplits] = static_cast<std::uint32_t>(plan.words.size());
  write_rounds(plan);
}

void AttendPlanner::write_rounds(AttendPlan& plan) const {
  const std::uint64_t heads = k_.heads();
  std::uint32_t split_index = 0;
  std::vector<std::map<std::pair<KeySource, KeySource>, std::vector<Turn>>> orders;
  std::uint64_t partials = 0;
  for (std::uint32_t index = 0; index < query_tiles_.size(); ++index) {
    const QueryTile& query_tile = query_tiles_[index];
    const std::uint64_t wanted = partials_of(query_tile);
    if (plan.rounds.empty() || (partials > 0 && (partials + wanted) * partial_bytes() > round_bytes())) {
      plan.rounds.push_back({index, 0, {}});
      orders.emplace_back();
      partials = 0;
    }
    ++plan.rounds.back().query_tiles;
    for (const KvSplit& split : query_tile.splits) {
      for (const std::uint64_t word : {std::uint64_t{index}, split.key, split.keys, partials,
                                       std::uint64_t{split.v == KeySource::sealed ? 1U : 0U}}) {
        plan.words.push_back(static_cast<std::uint32_t>(word));
      }
      orders.back()[{split.k, split.v}].push_back({query_tile.sequence, split.key, split_index++});
      partials += heads * query_tile.vectors;
    }
    plan.partial_bytes = std::max(plan.partial_bytes, partials * partial_bytes());
  }
  for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
    for (auto& [sources, turns] : orders[round]) {
      plan.rounds[round].launches.push_back({sources.first, sources.second,
                                             static_cast<std::uint32_t>(plan.words.size()),
                                             static_cast<std::uint32_t>(turns.size())});
      std::ranges::sort(turns);
      for (const Turn& turn : turns) plan.words.push_back(turn.split);
    }
  }
}

}  // namespace rota::ops
