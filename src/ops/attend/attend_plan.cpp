#include "ops/attend/attend_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/attend/plan_reader.h"

namespace rota::ops {
namespace {

constexpr std::uint64_t kScratchBytes = std::uint64_t{128}
                                        << 20;  // of partial results, unless one query tile needs more

KeySource source_of(const StoredSide& side, const KvPages& pages, std::uint64_t position) {
  if (pages.sinks && position < side.sinks()) return KeySource::sinks;
  const std::uint64_t page = position / side.page();
  if (page < pages.sealed_pages) return KeySource::sealed;
  return pages.step_page && page >= *pages.step_page ? KeySource::step : KeySource::dense;
}

// Of the shortest sequences. A CPU has few cores; a large GPU wants more workgroups than a small one.
std::uint64_t least_split_keys(const runtime::Target& target) {
  constexpr std::uint32_t kManyCores = 64;
  if (target.is_cpu()) return 2048;
  const bool is_large =
      target.limits.cores == 0 ? target.kind == DeviceKind::discrete_gpu : target.limits.cores >= kManyCores;
  return is_large ? 256 : 512;
}

// KV splits end at multiples of it. On one device a function of the position alone, so that queries of other sequences,
// later tokens and other query tokens change nothing; it grows from position 16,384 on, because every split costs a
// partial result.
std::uint64_t split_keys(const runtime::Target& target, std::uint64_t position) {
  constexpr std::uint64_t kFirstOctaves = 16384;
  const std::uint64_t grown = target.is_cpu() ? std::bit_floor(position) / 16
                              : position < kFirstOctaves
                                  ? 0
                                  : std::bit_floor(position) / kFirstOctaves * 2 * least_split_keys(target);
  return std::clamp(grown, least_split_keys(target), std::uint64_t{kMaxSplitKeys});
}

// Where a range that begins at `position` must end for the sake of one side.
std::uint64_t next_cut(const StoredSide& side, const KvPages& pages, std::uint64_t position) {
  switch (source_of(side, pages, position)) {
    case KeySource::sinks: return side.sinks();
    case KeySource::sealed: return pages.sealed_pages * side.page();
    case KeySource::dense: return pages.step_page ? *pages.step_page * side.page() : ~std::uint64_t{0};
    case KeySource::step: break;
  }
  return ~std::uint64_t{0};
}

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

template <class Struct>
void append(std::vector<std::uint32_t>& words, const Struct& what) {
  static_assert(std::is_trivially_copyable_v<Struct> && sizeof(Struct) % sizeof(std::uint32_t) == 0);
  const std::size_t at = words.size();
  words.resize(at + sizeof(Struct) / sizeof(std::uint32_t));
  std::memcpy(words.data() + at, &what, sizeof(Struct));
}

}  // namespace

std::uint32_t most_vectors(const runtime::Target& target, std::uint64_t k_dim, std::uint64_t v_dim) noexcept {
  if (target.is_cpu()) return kCpuVectors;
  // More shared memory than this leaves a GPU too few workgroups at a time to hide its memory's latency, and a lane
  // with more columns of values has registers for fewer vectors.
  const std::uint64_t room = std::min<std::uint64_t>(target.limits.shared_memory_bytes, 32U << 10);
  const std::uint32_t most = target.limits.lane_registers < kManyRegisters ? kGpuVectors / 2 : kGpuVectors;
  std::uint32_t vectors = most;
  const auto fits = [&] {
    return attend_shared_bytes(vectors, static_cast<uint>(k_dim)) <= room &&
           vectors * v_dim <= std::uint64_t{most} * 4 * kAttendGroupSize;
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
      group_(call.q.shape.heads / k.heads()) {
  sequences_.reserve(call.kv.lengths.size());
  query_tiles_.reserve(call.kv.lengths.size());
  splits_.reserve(call.kv.lengths.size());
}

// Pages that have left are not in the list: where logical page 0 would be may lie before it, as a word that wraps. It
// is counted from the first page table as yet.
PlanSide AttendPlanner::add_side(const StoredSide& side, const KvPages& pages, std::uint64_t length) {
  const std::uint64_t at = page_tables_.size();
  const auto count = static_cast<std::ptrdiff_t>(pages_wanted(side, pages, length) - pages.first_page);
  page_tables_.insert(page_tables_.end(), pages.page_table.begin(), pages.page_table.begin() + count);
  return {.page_table = static_cast<std::uint32_t>(at - pages.first_page),
          .ring = static_cast<std::uint32_t>(pages.ring.value_or(0)),
          .sinks = pages.sinks.value_or(0)};
}

// Of the query tile that is added next.
void AttendPlanner::add_splits(const AttendSequence& sequence, KeyRange keys, bool always_seen) {
  for (std::uint64_t at = keys.begin, end = 0; at < keys.end; at = end) {
    const std::uint64_t grid = split_keys(target_, at);
    end = std::min(
        {keys.end, core::round_down(at, grid) + grid, next_cut(k_, sequence.k, at), next_cut(v_, sequence.v, at)});
    const KeySource k = source_of(k_, sequence.k, at);
    const KeySource v = source_of(v_, sequence.v, at);
    splits_.push_back({{.query_tile = static_cast<std::uint32_t>(query_tiles_.size()),
                        .first_key = static_cast<std::uint32_t>(at),
                        .keys = static_cast<std::uint32_t>(end - at),
                        .first_partial = 0,
                        .rotated = v == KeySource::sealed ? 1U : 0U},
                       k,
                       v,
                       always_seen});
  }
}

Status AttendPlanner::add(const AttendSequence& sequence) {
  const std::uint64_t vectors = sequence.query_tokens * group_;
  const auto sequence_index = static_cast<std::uint32_t>(sequences_.size());
  const KeyRange all = kept(sequence, k_, v_);
  sequences_.push_back({.tokens = static_cast<std::uint32_t>(sequence.length),
                        .query_tokens = static_cast<std::uint32_t>(sequence.query_tokens),
                        .first_query_token = static_cast<std::uint32_t>(sequence.token),
                        .k = add_side(k_, sequence.k, sequence.length),
                        .v = add_side(v_, sequence.v, sequence.length)});
  if (Status status = check_words(); !status) return status;
  for (std::uint64_t first = 0; first < vectors; first += most_vectors_) {
    const std::uint64_t count = std::min<std::uint64_t>(most_vectors_, vectors - first);
    const auto first_split = static_cast<std::uint32_t>(splits_.size());
    const std::uint64_t end = seen(call_, sequence, all, (first + count - 1) / group_).end;
    const std::uint64_t sinks = std::min(call_.kv.sinks, end);
    add_splits(sequence, {0, sinks}, true);
    add_splits(sequence, {std::max(sinks, seen(call_, sequence, all, first / group_).begin), end}, false);
    query_tiles_.push_back({.sequence = sequence_index,
                            .first_vector = static_cast<std::uint32_t>(first),
                            .vectors = static_cast<std::uint32_t>(count),
                            .first_split = first_split,
                            .splits = static_cast<std::uint32_t>(splits_.size()) - first_split});
    if (Status status = core::first_error({check_words(), check_partials(query_tiles_.back())}); !status) return status;
  }
  return {};
}

std::uint64_t AttendPlanner::round_bytes() const {
  return std::min(kScratchBytes, core::round_down(target_.limits.max_binding_bytes, runtime::kBindingAlignment));
}

// How often a tile's splits change where they read: each may be in a launch of its own.
std::uint64_t AttendPlanner::sources_of(const QueryTile& tile) const {
  std::uint64_t sources = 0;
  for (std::uint32_t i = 0; i < tile.splits; ++i) {
    const SourcedSplit& one = splits_[tile.first_split + i];
    if (i == 0 || !one.is_like(splits_[tile.first_split + i - 1])) ++sources;
  }
  return sources;
}

Status AttendPlanner::check_words() const {
  const std::uint64_t words = kPlanHeaderWords + sequences_.size() * kPlanSequenceWords + page_tables_.size() +
                              query_tiles_.size() * kQueryTileWords + splits_.size() * (kKvSplitWords + 1);
  const std::uint64_t bytes = words * sizeof(std::uint32_t);
  return runtime::check_upload(target_, bytes,
                               [&] { return core::text("{}: a plan takes at least {} bytes", kAttend, bytes); });
}

Status AttendPlanner::check_partials(const QueryTile& tile) const {
  const std::uint64_t bytes = partial_bytes(partials_of(tile), sources_of(tile));
  return runtime::check_upload(target_, bytes, [&] {
    return core::text("{}: partial results of {} query vectors take {} bytes", kAttend, k_.heads() * tile.vectors,
                      bytes);
  });
}

void AttendPlanner::write(AttendPlan& plan) {
  for (const QueryTile& tile : query_tiles_) plan.vectors = std::max(plan.vectors, tile.vectors);
  assign_rounds(plan);
  assign_launches(plan);
  write_words(plan);
}

// A round is as many query tiles as have room for their partial results, or one.
void AttendPlanner::assign_rounds(AttendPlan& plan) {
  std::uint64_t partials = 0;
  std::uint64_t launches = 0;
  for (std::uint32_t index = 0; index < query_tiles_.size(); ++index) {
    const QueryTile& tile = query_tiles_[index];
    const bool has_room =
        partials == 0 || partial_bytes(partials + partials_of(tile), launches + sources_of(tile)) <= round_bytes();
    if (plan.rounds.empty() || !has_room) {
      plan.rounds.push_back({index, 0, {}});
      partials = 0;
      launches = 0;
    }
    ++plan.rounds.back().query_tiles;
    partials += partials_of(tile);
    launches += sources_of(tile);
  }
}

void AttendPlanner::write_words(AttendPlan& plan) const {
  const std::uint64_t page_tables = kPlanHeaderWords + sequences_.size() * kPlanSequenceWords;
  const std::uint64_t query_tiles = page_tables + page_tables_.size();
  const std::uint64_t splits = query_tiles + query_tiles_.size() * kQueryTileWords;
  plan.words.reserve(splits + splits_.size() * (kKvSplitWords + 1));  // and each split's number, in a launch
  append(plan.words, PlanHeader{.query_tiles = static_cast<std::uint32_t>(query_tiles),
                                .splits = static_cast<std::uint32_t>(splits)});
  for (PlanSequence sequence : sequences_) {
    sequence.k.page_table += static_cast<std::uint32_t>(page_tables);
    sequence.v.page_table += static_cast<std::uint32_t>(page_tables);
    append(plan.words, sequence);
  }
  plan.words.insert(plan.words.end(), page_tables_.begin(), page_tables_.end());
  for (const QueryTile& tile : query_tiles_) append(plan.words, tile);
  for (const SourcedSplit& one : splits_) append(plan.words, one.split);
  plan.words.insert(plan.words.end(), turns_.begin(), turns_.end());
  for (AttendRound& round : plan.rounds) {
    for (AttendLaunch& launch : round.launches) {
      launch.first_split += static_cast<std::uint32_t>(plan.words.size() - turns_.size());
    }
  }
}

// The splits of a round with the same sources are launched together.
void AttendPlanner::assign_launches(AttendPlan& plan) {
  std::vector<Turn> turns;
  turns.reserve(splits_.size());
  turns_.reserve(splits_.size());
  for (AttendRound& round : plan.rounds) {
    turns.clear();
    for (std::uint32_t i = 0; i < round.query_tiles; ++i) {
      const QueryTile& tile = query_tiles_[round.first_query_tile + i];
      for (std::uint32_t index = tile.first_split; index < tile.first_split + tile.splits; ++index) {
        const SourcedSplit& one = splits_[index];
        turns.push_back({one.k, one.v, one.always_seen, tile.sequence, one.split.first_key, index});
      }
    }
    std::ranges::sort(turns);
    for (const Turn& turn : turns) add_to_launch(round, turn);
    if (round.launches.empty()) continue;
    plan.partial_bytes = std::max(plan.partial_bytes, round.launches.back().end_partial() * partial_bytes());
    plan.sealed_keys = plan.sealed_keys || std::ranges::any_of(round.launches, [](const AttendLaunch& launch) {
                         return launch.k == KeySource::sealed;
                       });
  }
}

// As the last of a round's launches, or of a new one, whose partial results begin where a binding may.
void AttendPlanner::add_to_launch(AttendRound& round, const Turn& turn) {
  std::vector<AttendLaunch>& launches = round.launches;
  AttendLaunch launch{turn.k, turn.v, turn.always_seen, static_cast<std::uint32_t>(turns_.size()), 0, 0, 0, 0};
  if (launches.empty() || !launches.back().is_like(launch)) {
    if (!launches.empty()) {
      launch.first_partial = static_cast<std::uint32_t>(core::round_up(launches.back().end_partial(), kPartialStep));
    }
    launches.push_back(launch);
  }
  AttendLaunch& last = launches.back();
  KvSplit& split = splits_[turn.split].split;
  split.first_partial = static_cast<std::uint32_t>(last.end_partial());
  last.partials += static_cast<std::uint32_t>(k_.heads()) * query_tiles_[split.query_tile].vectors;
  ++last.splits;
  last.keys += split.keys;
  turns_.push_back(turn.split);
}

}  // namespace rota::ops
