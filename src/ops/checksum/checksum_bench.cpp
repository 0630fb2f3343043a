#include "measure.h"
#include "ops/checksum/checksum_bench_case.h"

// How fast a device reads. Take medians of one run, interleaved at random
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_report_aggregates_only=true).

namespace rota::bench {
namespace {

void read_memory(benchmark::State& state, const ChecksumCase& what) {
  Place place = cpu_of(state);
  measure(state, checksum_work(place, what));
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
BENCHMARK_CAPTURE(read_memory, 64_MiB_of_1_GiB, ChecksumCase{64 * kMiB, 16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(read_memory, 4_MiB_of_1_GiB, ChecksumCase{4 * kMiB, 256})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(read_memory, 1_MiB_from_cache, ChecksumCase{kMiB, 1})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota::bench
