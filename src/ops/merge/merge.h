#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/merge/merge.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `merge`: what a call means, before any device is asked.

namespace rota::ops {

struct MergePlan {
  std::array<runtime::Bindable, kMergeViews> views{};  // kMergedLog's only where the call asks for it
  std::uint32_t outs_in_place = kNoPart, logs_in_place = kNoPart;
};

// Refuses every bad argument, or says which bytes are touched and which of them are read and written.
Result<MergePlan> check_merge(const Merge& call, const runtime::Target& target);

struct MergeLaunch {
  runtime::Constants constants;
  runtime::Dispatch dispatch;
  MergeParams params;
  std::array<Strides, kMergeViews> views;
};

// The launch for a checked call. Precondition: there is a row to merge.
MergeLaunch choose_merge(const Merge& call, const MergePlan& plan);

void merge_cpu(const runtime::CpuCall& call) noexcept;

}  // namespace rota::ops
