#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/isa.h"
#include "ops/checksum/checksum.params.h"
#include "rota/ops.h"
#include "runtime/command.h"
#include "runtime/target.h"

// The pure half of `checksum`: what a call means, before any device is asked.

namespace rota::ops {

struct ChecksumPlan {
  // A range, or as much of one as a binding can address.
  struct Part {
    std::size_t range;
    runtime::Bindable bound;
  };
  std::vector<Part> parts;  // of ranges that are not empty
  runtime::Bindable sums;
};

// Refuses every bad argument, or says which bytes are touched.
Result<ChecksumPlan> check_checksum(const Checksum& call, const runtime::Target& target);

// A row of CPU work: a thread is given some side by side.
inline constexpr std::uint64_t kRowWords = std::uint64_t{16} << 10;

// Enough to fill a GPU; beyond that each takes more chunks, so that fewer add to the sum.
inline constexpr std::uint64_t kMaxChecksumGroups = 2048;

struct ChecksumLaunch {
  runtime::Dispatch dispatch;
  ChecksumParams params;
};

struct ClearLaunch {
  runtime::Dispatch dispatch;
  ClearParams params;
};

// The launches of a checked call: all sums become zero, then each part is added to its own.
ClearLaunch choose_clear(const ChecksumPlan& plan);
ChecksumLaunch choose_checksum(const ChecksumPlan& plan, const ChecksumPlan::Part& part);

void checksum_clear_cpu(const runtime::CpuCall& call) noexcept;
void checksum_cpu(const runtime::CpuCall& call) noexcept;
void checksum_cpu(const runtime::CpuCall& call, core::Isa isa) noexcept;

}  // namespace rota::ops
