#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "copy_limit.h"
#include "rota/rota.h"

// Prompt tokens into a head-major cache, beside a plain copy of as many bytes. Compare medians of one run, with
// --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_report_aggregates_only=true.

namespace rota {
namespace {

constexpr Shape kShape{.tokens = 4096, .heads = 8, .dim = 128};
constexpr std::uint64_t kElements = kShape.tokens * kShape.heads * kShape.dim;

struct Case {
  DType from, to;
  bool counts = false;
};

void store_tokens(benchmark::State& state, Case what) {
  const auto [from, to, counts] = what;
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  Device device = Device::open({.device = "cpu", .threads = threads}).value();
  Buffer source = device.allocate(kElements * info(from).bytes).value();
  Buffer cache = device.allocate(kElements * info(to).bytes).value();
  const std::vector<std::byte> zeros(source.size_bytes());
  source.write(zeros).value();
  const Counter counter{device.allocate(sizeof(std::uint64_t)).value()};
  const StorePair pair{View::token_major(source, from, kShape),
                       SlotView::head_major(cache, to, {.page_slots = kShape.tokens, .heads = 8, .dim = 128})};
  const TokenRun run{.tokens = kShape.tokens, .position = 77, .capacity = kShape.tokens};
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    store(encoder,
          {.pairs = {&pair, 1}, .sequences = {&run, 1}, .non_finite = counts ? std::optional(counter) : std::nullopt});
    std::move(encoder).submit().value().wait().value();
  }
  const auto bytes = static_cast<std::int64_t>(source.size_bytes() + cache.size_bytes());
  state.SetBytesProcessed(bytes * static_cast<std::int64_t>(state.iterations()));
}

void copy_bytes(benchmark::State& state) {
  bench::copy_limit(state, {.bytes = kElements * 4, .count = 1, .buffers = 1});
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

// One decoded token: what a call costs before any byte moves.
void store_one_token(benchmark::State& state) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer source = device.allocate(8 * 128 * 4).value();
  Buffer cache = device.allocate(std::uint64_t{2} * kElements).value();
  const StorePair pair{View::token_major(source, DType::f32, {.tokens = 1, .heads = 8, .dim = 128}),
                       SlotView::head_major(cache, DType::f16, {.page_slots = kShape.tokens, .heads = 8, .dim = 128})};
  const std::vector<StorePair> pairs{pair, pair};
  const TokenRun run{.tokens = 1, .position = 77, .capacity = kShape.tokens};
  constexpr int kLayers = 32;
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    for (int layer = 0; layer < kLayers; ++layer) store(encoder, {.pairs = pairs, .sequences = {&run, 1}});
    std::move(encoder).submit().value().wait().value();
  }
}
BENCHMARK(store_one_token)->UseRealTime();

}  // namespace
}  // namespace rota
