#pragma once

#include <cstdint>
#include <string>

#include "bench_case.h"
#include "ops/attend/attend_bench_case.h"
#include "rota/device.h"

// What `rota bench` times: cases that lie beside their ops, of the shape that options ask for.

namespace rota::tool {

// Of other ops than attend, keys are tokens, and what they do not know is left aside.
using BenchShape = bench::AttendCase;

// Of the memory of a device, and what else is asked for.
struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::uint64_t rotated_bytes = 0;  // that each case goes round through
};

MemoryLeft memory_of(const Device& device, std::uint64_t rotated_bytes);

// Takes from `left`, and fails where there is less. It outlives the place.
bench::Place place_of(const Device& device, MemoryLeft& left);

// `op` is one of kBenchOps.
bench::Work make_work(bench::Place& place, const std::string& op, const BenchShape& shape);

// Reads memory as fast as the device can.
bench::Work make_read(bench::Place& place);

}  // namespace rota::tool
