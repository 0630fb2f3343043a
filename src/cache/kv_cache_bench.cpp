#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "cache/kv_cache_bench.h"
#include "rota/rota.h"

// Steps of a cache as a model of 32 layers with 8 KV heads of 128 takes them, K and V in 4 bits: what the cache itself
// costs. "record" is the time of the host alone.

namespace rota {
namespace {

using cache::kBenchDim, cache::kBenchHeads, cache::kBenchLayers;

struct Steps {
  Steps(std::uint32_t sequences, std::uint64_t most_tokens, std::uint32_t threads)
      : device(Device::open({.device = "cpu", .threads = threads}).value()),
        cache(KvCache::create(device, {.groups = {cache::bench_group()},
                                       .max_tokens = sequences * std::uint64_t{2048},
                                       .max_sequences = sequences,
                                       .max_step_tokens = most_tokens})
                  .value()) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(most_tokens * kBenchHeads * kBenchDim);
    for (float& number : numbers) number = normal(random);
    values = device.allocate(numbers.size() * sizeof(float)).value();
    values.write(std::as_bytes(std::span(numbers))).value();
  }

  void restart(std::uint32_t sequences) {
    for (const KvExtension& extension : extensions) cache.close(extension.sequence).value();
    extensions.clear();
    for (std::uint32_t i = 0; i < sequences; ++i) extensions.push_back({cache.open_sequence().value(), 1});
  }

  Encoder record() {
    Encoder encoder = device.encoder();
    auto step = cache.extend(encoder, extensions).value();
    const View x = View::token_major(values, DType::f32,
                                     {.tokens = step.positions().size(), .heads = kBenchHeads, .dim = kBenchDim});
    for (std::uint32_t layer = 0; layer < kBenchLayers; ++layer) step.append(encoder, layer, x, x);
    return encoder;
  }

  Device device;
  KvCache cache;
  Buffer values;
  std::vector<KvExtension> extensions;
};

// One token for each sequence, over and over: sealing is spread over the steps as it is in use.
void cache_decode(benchmark::State& state, bool waits) {
  const auto sequences = static_cast<std::uint32_t>(state.range(0));
  Steps steps(sequences, sequences, 1);
  std::uint64_t length = 2048;
  for (auto _ : state) {
    if (length == 2048) {
      state.PauseTiming();
      steps.restart(sequences);
      length = 0;
      state.ResumeTiming();
    }
    Encoder encoder = steps.record();
    if (!waits) state.PauseTiming();
    std::move(encoder).submit().value().wait().value();
    if (!waits) state.ResumeTiming();
    ++length;
  }
  state.counters["per layer and sequence"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kBenchLayers * sequences,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(cache_decode, step, true)->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK_CAPTURE(cache_decode, record, false)->Arg(1)->Arg(16)->UseRealTime();

void cache_prompt(benchmark::State& state) {
  constexpr std::uint64_t kChunk = 512;
  Steps steps(1, kChunk, static_cast<std::uint32_t>(state.range(0)));
  for (auto _ : state) {
    steps.restart(1);
    steps.extensions.front().tokens = kChunk;
    for (std::uint64_t at = 0; at < 2048; at += kChunk) std::move(steps.record()).submit().value().wait().value();
  }
  state.counters["per token"] = benchmark::Counter(static_cast<double>(state.iterations()) * 2048,
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(cache_prompt)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota
