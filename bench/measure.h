#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

#include "bench_case.h"

// Cases as Google Benchmark runs them: on the CPU, with as many threads as the first argument says.

namespace rota::bench {

inline Place cpu_with(std::uint32_t threads) {
  return {.device = Device::open({.device = "cpu", .threads = threads}).value()};
}

inline Place cpu_of(const benchmark::State& state) { return cpu_with(static_cast<std::uint32_t>(state.range(0))); }

// Each iteration submits so many calls together.
inline void measure(benchmark::State& state, const Work& work, std::uint64_t calls = 1) {
  work.prepare();
  for (auto _ : state) work.run(calls);
  state.SetBytesProcessed(static_cast<std::int64_t>(work.bytes * calls) *
                          static_cast<std::int64_t>(state.iterations()));
}

}  // namespace rota::bench
