#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "copy_limit.h"
#include "rota/rota.h"

// A prompt's queries, beside a plain copy of as many bytes. Compare medians of one run, interleaved at random
// (--benchmark_enable_random_interleaving=true --benchmark_repetitions=9).

namespace rota {
namespace {

constexpr Shape kShape{.tokens = 2048, .heads = 16, .dim = 256};

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return shape.tokens * shape.heads * shape.dim * info(dtype).bytes;
}

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
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  Device device = Device::open({.device = "cpu", .threads = threads}).value();
  const Shape shape{.tokens = kShape.tokens, .heads = what.heads, .dim = kShape.dim};
  const std::vector<std::byte> zeros(bytes_of(shape, what.dtype));
  const auto allocate = [&] {
    Buffer buffer = device.allocate(zeros.size()).value();
    buffer.write(zeros).value();
    return buffer;
  };
  std::vector<RopeTensor> tensors;
  for (std::size_t i = 0; i < (what.cache == Cache::warm ? 1 : kCalls); ++i) {
    const Buffer from = allocate();
    const Buffer to = what.where == Where::in_place ? from : allocate();
    tensors.push_back(
        {.from = View::token_major(from, what.dtype, shape), .to = MutView::token_major(to, what.dtype, shape)});
    if (what.normed) tensors.back().norm = HeadNorm{.epsilon = 1e-6};
  }
  std::vector<std::int64_t> positions(kShape.tokens);
  std::iota(positions.begin(), positions.end(), 100000);
  const Rotary rotary{.pairing = what.pairing, .theta = 1e6};
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    for (std::size_t i = 0; i < kCalls; ++i) {
      rope(encoder, {.tensors = {&tensors[i % tensors.size()], 1}, .positions = positions, .rotary = rotary});
    }
    std::move(encoder).submit().value().wait().value();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * kCalls * zeros.size()) *
                          static_cast<std::int64_t>(state.iterations()));
}

void rope_copy(benchmark::State& state, DType dtype, Cache cache) {
  bench::copy_limit(
      state,
      {.bytes = bytes_of(kShape, dtype), .count = kCalls, .buffers = cache == Cache::warm ? std::size_t{1} : kCalls});
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
  constexpr std::size_t kLayers = 32;
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer queries = device.allocate(32 * 128 * 4).value();
  Buffer keys = device.allocate(8 * 128 * 4).value();
  for (Buffer* buffer : {&queries, &keys}) buffer->write(std::vector<std::byte>(buffer->size_bytes())).value();
  const std::vector<RopeTensor> both{
      RopeTensor::in_place(MutView::token_major(queries, DType::f32, {.tokens = 1, .heads = 32, .dim = 128})),
      RopeTensor::in_place(MutView::token_major(keys, DType::f32, {.tokens = 1, .heads = 8, .dim = 128}))};
  const std::vector<std::int64_t> positions{77777};
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      rope(encoder, {.tensors = both, .positions = positions, .rotary = {.pairing = Pairing::halves, .theta = 1e6}});
    }
    std::move(encoder).submit().value().wait().value();
  }
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
}  // namespace rota
