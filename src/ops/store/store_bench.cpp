#include "copy_limit.h"
#include "measure.h"
#include "ops/store/store_bench_case.h"

// Prompt tokens into a head-major cache, beside a plain copy of as many bytes. Compare medians of one run, with
// --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_report_aggregates_only=true.

namespace rota::bench {
namespace {

constexpr std::uint64_t kTokens = 4096, kHeads = 8, kDim = 128;

struct Case {
  DType from, to;
  bool counts = false;
};

void store_tokens(benchmark::State& state, Case what) {
  Place place = cpu_of(state);
  measure(state, store_work(place, {.sides = {{what.from, what.to, kDim}},
                                    .heads = kHeads,
                                    .tokens = kTokens,
                                    .position = 77,
                                    .counts = what.counts}));
}

void copy_bytes(benchmark::State& state) {
  copy_limit(state, {.bytes = kTokens * kHeads * kDim * 4, .count = 1, .buffers = 1});
}

BENCHMARK_CAPTURE(store_tokens, f16_to_f16, Case{DType::f16, DType::f16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, f16_to_f16_counted, Case{DType::f16, DType::f16, true})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, f32_to_f16, Case{DType::f32, DType::f16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, f32_to_f16_counted, Case{DType::f32, DType::f16, true})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, f32_to_bf16, Case{DType::f32, DType::bf16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, bf16_to_f32, Case{DType::bf16, DType::f32})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(store_tokens, bf16_to_f32_counted, Case{DType::bf16, DType::f32, true})
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();
BENCHMARK(copy_bytes)->Arg(1)->Arg(2)->UseRealTime();

// One decoded token, keys and values of 32 layers: what a call costs before any byte moves.
void store_one_token(benchmark::State& state) {
  Place place = cpu_with(1);
  const StoreCase::Side side{DType::f32, DType::f16, kDim};
  const Work work =
      store_work(place, {.sides = {side, side}, .heads = kHeads, .tokens = 1, .slots = kTokens, .position = 77});
  measure(state, work, 32);
}
BENCHMARK(store_one_token)->UseRealTime();

}  // namespace
}  // namespace rota::bench
