#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/store/store.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `store`: what a call means, before any device is asked.

namespace rota::runtime {
class Recorder;
}

namespace rota::ops {

struct StorePlan {
  struct Pair {
    runtime::Bindable from, to;
  };
  std::vector<Pair> pairs;                   // one per pair of the call
  std::optional<runtime::Bindable> counter;  // where the call has one
  std::vector<std::uint32_t> slots;          // kPlanWords for each token that stays

  std::uint64_t tokens() const noexcept { return slots.size() / kPlanWords; }
};

// Refuses every bad argument, or says which bytes are touched and where each token goes.
Result<StorePlan> check_store(const Store& call, const runtime::Target& target);

struct StoreLaunch {
  runtime::Constants constants;
  runtime::Dispatch dispatch;
  StoreParams params;
};

// The launch for one pair of a checked call. Precondition: there is something to copy.
StoreLaunch choose_store(const StorePair& pair, const StorePlan::Pair& bound, std::uint64_t tokens,
                         const std::optional<runtime::Bindable>& counter);

// What all pairs of a call have in common once it is recorded.
struct StoreTokens {
  runtime::Binding plan;
  std::uint64_t tokens;
  std::optional<runtime::Binding> counter = {};
  std::optional<runtime::Bindable> counted = {};
};

void dispatch_store(runtime::Recorder& recorder, const StorePair& pair, const StorePlan::Pair& bound,
                    const StoreTokens& tokens);

void store_cpu(const runtime::CpuCall& call) noexcept;

}  // namespace rota::ops
