#include <cmath>
#include <vector>

#include "copy_limit.h"
#include "measure.h"
#include "ops/rope/rope_bench_case.h"

// A prompt's queries, beside a plain copy of as many bytes. Compare medians of one run, interleaved at random
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).

namespace rota::bench {
namespace {

constexpr Shape kShape{.tokens = 2048, .heads = 16, .dim = 256};

// As many calls in one submission, each with memory of its own or all with the same: out of cache or in it.
constexpr std::size_t kCalls = 16;

enum class Where { elsewhere, in_place };
enum class Cache { warm, cold };

// What the case is about; all else is as usual.
struct Case {
  DType dtype = DType::f16;
  Cache cache = Cache::warm;
  Where where = Where::elsewhere;
  Pairing pairing = Pairing::halves;
  bool normed = false;
  std::uint64_t heads = kShape.heads;
};

void rotate(benchmark::State& state, const Case& what) {
  Place place = cpu_of(state);
  RopeCase made{.dtype = what.dtype,
                .tokens = kShape.tokens,
                .heads = {what.heads},
                .head_dim = kShape.dim,
                .rotary = {.pairing = what.pairing, .theta = 1e6},
                .first_position = 100000,
                .in_place = what.where == Where::in_place,
                .normed = what.normed};
  if (what.cache == Cache::cold) made.rotated_bytes = kCalls * made.copy_bytes();
  measure(state, rope_work(place, made), kCalls);
}

void rope_copy(benchmark::State& state, DType dtype, Cache cache) {
  copy_limit(state, {.bytes = kShape.tokens * kShape.heads * kShape.dim * info(dtype).bytes,
                     .count = kCalls,
                     .buffers = cache == Cache::warm ? std::size_t{1} : kCalls});
}

// The way not taken: cosines and sines of all positions in f64, which a caller would have to keep from call to call.
void make_rope_table(benchmark::State& state) {
  constexpr std::uint64_t kPairs = kShape.dim / 2;
  std::vector<float> table(kShape.tokens * kPairs * 2);
  for (auto _ : state) {
    for (std::uint64_t p = 0; p < kPairs; ++p) {
      const double frequency = std::pow(1e6, -static_cast<double>(p) / static_cast<double>(kPairs));
      for (std::uint64_t token = 0; token < kShape.tokens; ++token) {
        const double angle = static_cast<double>(100000 + token) * frequency;
        table[(token * kPairs + p) * 2] = static_cast<float>(std::cos(angle));
        table[(token * kPairs + p) * 2 + 1] = static_cast<float>(std::sin(angle));
      }
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(make_rope_table)->UseRealTime();

// One decoded token, queries and keys of 32 layers: what a call costs.
void rotate_one_token(benchmark::State& state) {
  constexpr std::uint64_t kLayers = 32;
  Place place = cpu_with(1);
  const RopeCase what{.dtype = DType::f32,
                      .heads = {32, 8},
                      .rotary = {.pairing = Pairing::halves, .theta = 1e6},
                      .first_position = 77777};
  measure(state, rope_work(place, what), kLayers);
  state.SetItemsProcessed(static_cast<std::int64_t>(kLayers) * static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(rotate_one_token)->UseRealTime();

BENCHMARK_CAPTURE(rope_copy, f16_warm, DType::f16, Cache::warm)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rope_copy, f16_cold, DType::f16, Cache::cold)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rope_copy, f32_warm, DType::f32, Cache::warm)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_warm, Case{})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_cold, Case{.cache = Cache::cold})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_warm_in_place, Case{.where = Where::in_place})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_cold_in_place, Case{.cache = Cache::cold, .where = Where::in_place})
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime();
// One head per token: hardly anything but angles.
BENCHMARK_CAPTURE(rotate, f16_warm_one_head, Case{.where = Where::in_place, .heads = 1})->Arg(1)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_warm_interleaved, Case{.pairing = Pairing::interleaved})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_warm_normed, Case{.normed = true})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, bf16_warm, Case{.dtype = DType::bf16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f32_warm, Case{.dtype = DType::f32})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota::bench
