#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "rota/rota.h"

// A prompt's queries, beside a plain copy of as many bytes. Compare medians of one run, with
// --benchmark_filter='rope|rotate' --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
// --benchmark_report_aggregates_only=true.

namespace rota {
namespace {

constexpr Shape kShape{.tokens = 2048, .heads = 16, .dim = 256};
constexpr std::uint64_t kElements = kShape.tokens * kShape.heads * kShape.dim;

enum class Where { elsewhere, in_place };

// What the case is about; all others are as usual.
struct Case {
  DType dtype = DType::f16;
  Where where = Where::elsewhere;
  Pairing pairing = Pairing::halves;
  bool normed = false;
};

void rotate(benchmark::State& state, const Case& what) {
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  Device device = Device::open({.device = "cpu", .threads = threads}).value();
  Buffer from = device.allocate(kElements * info(what.dtype).bytes).value();
  Buffer to = what.where == Where::in_place ? from : device.allocate(from.size_bytes()).value();
  const std::vector<std::byte> zeros(from.size_bytes());
  from.write(zeros).value();
  to.write(zeros).value();
  std::vector<std::int64_t> positions(kShape.tokens);
  std::iota(positions.begin(), positions.end(), 100000);
  RopeTensor tensor{.from = View::token_major(from, what.dtype, kShape),
                    .to = MutView::token_major(to, what.dtype, kShape)};
  if (what.normed) tensor.norm = HeadNorm{.epsilon = 1e-6};
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    rope(encoder, {.tensors = {&tensor, 1}, .positions = positions, .rotary = {.pairing = what.pairing, .theta = 1e6}});
    std::move(encoder).submit().value().wait().value();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * from.size_bytes()) *
                          static_cast<std::int64_t>(state.iterations()));
}

// The limit: memcpy of as many bytes by as many threads.
void rope_copy(benchmark::State& state, DType dtype) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const std::size_t bytes = kElements * info(dtype).bytes;
  const std::size_t part = bytes / threads;
  std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < threads; ++t) {
      others.emplace_back([&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
    }
    std::memcpy(to.data(), from.data(), part);
    for (std::thread& other : others) other.join();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * bytes) * static_cast<std::int64_t>(state.iterations()));
}

BENCHMARK_CAPTURE(rope_copy, f16, DType::f16)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16, Case{})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_in_place, Case{.where = Where::in_place})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_interleaved, Case{.pairing = Pairing::interleaved})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_normed, Case{.normed = true})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, bf16, Case{.dtype = DType::bf16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rope_copy, f32, DType::f32)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f32, Case{.dtype = DType::f32})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota
