#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/isa.h"
#include "ops/rope/rope.params.h"
#include "ops/rope/rotary.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `rope`: what a call means, before any device is asked.

namespace rota::ops {

struct RopePlan {
  struct Tensor {
    runtime::Bindable from, to;
    std::optional<runtime::Bindable> weight;
    bool in_place = false;
  };
  std::vector<Tensor> tensors;           // one per tensor of the call
  std::vector<std::uint32_t> positions;  // [axis][token]
  PairTable pairs;
};

// Refuses every bad argument, or says which bytes are touched and how each pair turns.
Result<RopePlan> check_rope(const Rope& call, const runtime::Target& target);

struct RopeLaunch {
  runtime::Constants constants;
  runtime::Dispatch dispatch;
  RopeParams params;
};

// The launch for one tensor of a checked call. Precondition: there is something to turn.
RopeLaunch choose_rope(const RopeTensor& tensor, const RopePlan::Tensor& bound, const PairTable& pairs);

void rope_cpu(const runtime::CpuCall& call) noexcept;
void rope_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept;

}  // namespace rota::ops
