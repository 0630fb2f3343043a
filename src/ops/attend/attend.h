#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/attend/attend.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `attend`: what a call means, before any device is asked.

namespace rota::ops {

enum class KeySource : std::uint8_t { dense, sealed, sinks, step };
inline constexpr std::size_t kSources = 4;

// The checked memory of keys or of values, by source.
struct AttendSide {
  std::array<std::optional<runtime::Bindable>, kSources> bound = {};
};

// KV splits with the same two sources: one launch. Keys that are sinks of the call are seen whatever the window.
struct AttendLaunch {
  KeySource k, v;
  bool always_seen;
  std::uint32_t first_split;  // word of the plan that has the first one's number
  std::uint32_t splits;
  std::uint64_t keys;                     // of all of them
  std::uint32_t first_partial, partials;  // its own, so that launches of a round wait for nobody

  std::uint64_t end_partial() const noexcept { return std::uint64_t{first_partial} + partials; }
  bool is_like(const AttendLaunch& other) const noexcept {
    return k == other.k && v == other.v && always_seen == other.always_seen;
  }
};

// Query tiles whose partial results fit into scratch together.
struct AttendRound {
  std::uint32_t first_query_tile, query_tiles;
  std::vector<AttendLaunch> launches;
};

// The checked memory of a call.
struct AttendViews {
  runtime::Bindable q, out;
  std::optional<runtime::Bindable> log_sum_exp, sink_logits, alibi_slopes;
  AttendSide k, v;
  std::uint64_t query_bytes = 0;  // of scratch
};

// Who computes what. It follows from shapes and pages alone, so that all layers of a step have the same.
struct AttendPlan {
  std::vector<std::uint32_t> words;
  std::vector<AttendRound> rounds;
  std::uint64_t partial_bytes = 0;  // of the largest round
  std::uint32_t vectors = 0;        // of the largest query tile
  bool sealed_keys = false;         // are read: only they want queries that are rotated

  bool empty() const noexcept { return rounds.empty(); }
};

// Refuses every bad argument but those of sequences, or says what is touched.
Result<AttendViews> check_attend_views(const Attend& call, const runtime::Target& target);

// Refuses bad sequences, or says who computes what. Precondition: check_attend_views() passed.
Result<AttendPlan> plan_attend(const Attend& call, const runtime::Target& target);

inline constexpr std::uint32_t kCpuVectors = 16, kGpuVectors = 8;
// With fewer registers than that a lane serves half of the vectors: devices have about 128 or 256.
inline constexpr std::uint32_t kManyRegisters = 200;

// How many query vectors one split serves: what registers and shared memory hold.
std::uint32_t most_vectors(const runtime::Target& target, std::uint64_t k_dim, std::uint64_t v_dim) noexcept;

void attend_query_cpu(const runtime::CpuCall& call) noexcept;
void attend_split_cpu(const runtime::CpuCall& call) noexcept;
void attend_merge_cpu(const runtime::CpuCall& call) noexcept;

}  // namespace rota::ops
