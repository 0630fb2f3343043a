#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/placement.h"
#include "ops/store/store.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `store`: what a call means, before any device is asked.

namespace rota::runtime {
class Recorder;
}

namespace rota::ops {

struct CheckedStore {
  struct Pair {
    runtime::Bindable from, to;
  };
  std::vector<Pair> pairs;                   // one per pair of the call
  std::optional<runtime::Bindable> counter;  // where the call has one
  std::vector<core::Stretch> stretches;      // where tokens go; none if these have no elements
};

// Refuses every bad argument but two tokens for one slot, or says which bytes are touched and where each token goes.
// What `checked` held is gone, its room is used again.
Status check_store(const Store& call, const runtime::Target& target, CheckedStore& checked);

// kPlanWords for each token that stays, or an error if two want one slot.
Result<std::vector<std::uint32_t>> plan_slots(std::span<const core::Stretch> stretches, const runtime::Target& target);

struct StoreLaunch {
  runtime::Constants constants;
  runtime::Dispatch dispatch;
  StoreParams params;
};

// The launch for one pair of a checked call. Precondition: there is something to copy.
StoreLaunch choose_store(const StorePair& pair, const CheckedStore::Pair& bound, std::uint64_t tokens,
                         const std::optional<runtime::Bindable>& counter);

// What all pairs of a call have in common once it is recorded.
struct StoreTokens {
  runtime::Binding plan;
  std::uint64_t tokens;
  std::optional<runtime::Binding> counter = {};
  std::optional<runtime::Bindable> counted = {};
};

void dispatch_store(runtime::Recorder& recorder, const StorePair& pair, const CheckedStore::Pair& bound,
                    const StoreTokens& tokens);

void store_cpu(const runtime::CpuCall& call) noexcept;

}  // namespace rota::ops
