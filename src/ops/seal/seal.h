#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/isa.h"
#include "ops/seal/seal.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `seal` and `unseal`: what a call means, before any device is asked.

namespace rota::ops {

struct SealPlan {
  runtime::Bindable dense, sealed, counter;
  std::vector<std::uint32_t> pages;  // kPageWords for each page

  bool empty() const noexcept { return pages.empty(); }
};

// A page's slices must fit one launch.
constexpr std::uint64_t most_sealed_heads(const PageFormat& format) noexcept {
  return runtime::kMaxGroups / (format.tokens / kSliceTokens);
}

// Refuse every bad argument, or say which bytes are touched and which page goes where.
Result<SealPlan> check_seal(const Seal& call, const runtime::Target& target);
Result<SealPlan> check_unseal(const Unseal& call, const runtime::Target& target);

struct SealLaunch {
  runtime::Dispatch dispatch;
  SealParams params;
};

// The launches of a checked call, whichever way: one, unless it has more pages than workgroups can be launched for.
std::vector<SealLaunch> choose_seal(const SlotView& dense, const SealedView& sealed, const SealPlan& plan);

void seal_cpu(const runtime::CpuCall& call) noexcept;
void seal_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept;
void unseal_cpu(const runtime::CpuCall& call) noexcept;
void unseal_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept;

}  // namespace rota::ops
