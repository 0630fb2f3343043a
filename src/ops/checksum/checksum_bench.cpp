#include <benchmark/benchmark.h>

#include <vector>

#include "rota/rota.h"

// How fast a device reads: the limit that all other ops are held against. Take medians of one run, interleaved at
// random
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_report_aggregates_only=true).

namespace rota {
namespace {

// Calls go round the memory, so that none finds in a cache what it reads.
struct Case {
  std::uint64_t memory_bytes, call_bytes;
};

void read_memory(benchmark::State& state, Case what) {
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  Device device = Device::open({.device = "cpu", .threads = threads}).value();
  Buffer memory = device.allocate(what.memory_bytes).value();
  memory.write(std::vector<std::byte>(what.memory_bytes, std::byte{1})).value();
  const Buffer sum = device.allocate(sizeof(std::uint32_t)).value();
  WordRange range{.buffer = memory, .size_bytes = what.call_bytes};
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    checksum(encoder, {.of = {&range, 1}, .sums = sum});
    std::move(encoder).submit().value().wait().value();
    range.offset_bytes = (range.offset_bytes + what.call_bytes) % what.memory_bytes;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(what.call_bytes) * static_cast<std::int64_t>(state.iterations()));
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
BENCHMARK_CAPTURE(read_memory, 64_MiB_of_1_GiB, Case{1024 * kMiB, 64 * kMiB})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(read_memory, 4_MiB_of_1_GiB, Case{1024 * kMiB, 4 * kMiB})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(read_memory, 1_MiB_from_cache, Case{kMiB, kMiB})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota
