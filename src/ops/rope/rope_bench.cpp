#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
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
};

void count_bytes(benchmark::State& state, DType dtype) {
  const std::uint64_t bytes = 2 * kCalls * kElements * info(dtype).bytes;
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * static_cast<std::int64_t>(state.iterations()));
}

void rotate(benchmark::State& state, const Case& what) {
  const auto threads = static_cast<std::uint32_t>(state.range(0));
  Device device = Device::open({.device = "cpu", .threads = threads}).value();
  const std::vector<std::byte> zeros(kElements * info(what.dtype).bytes);
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
        {.from = View::token_major(from, what.dtype, kShape), .to = MutView::token_major(to, what.dtype, kShape)});
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
  count_bytes(state, what.dtype);
}

// Memory as the CPU device has it.
class LargePages {
 public:
  explicit LargePages(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)), std::free) {
    madvise(memory_.get(), bytes, MADV_HUGEPAGE);
    std::memset(memory_.get(), 0, bytes);
  }
  std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::size_t kPage = 2U << 20;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

// The limit: memcpy of as many bytes by as many threads, which wait for each other once per copy.
void rope_copy(benchmark::State& state, DType dtype, Cache cache) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const std::size_t bytes = kElements * info(dtype).bytes;
  const std::size_t part = bytes / threads;
  const std::size_t buffers = cache == Cache::warm ? 1 : kCalls;
  std::vector<LargePages> from;
  std::vector<LargePages> to;
  for (std::size_t i = 0; i < buffers; ++i) {
    from.emplace_back(bytes);
    to.emplace_back(bytes);
  }
  std::barrier meet(static_cast<std::ptrdiff_t>(threads));
  std::atomic<bool> stop = false;
  const auto copy_part = [&](std::size_t t) {
    for (std::size_t i = 0; i < kCalls; ++i) {
      std::memcpy(to[i % buffers].data() + t * part, from[i % buffers].data() + t * part, part);
      benchmark::ClobberMemory();
      meet.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      for (meet.arrive_and_wait(); !stop; meet.arrive_and_wait()) copy_part(t);
    });
  }
  for (auto _ : state) {
    meet.arrive_and_wait();
    copy_part(0);
  }
  stop = true;
  meet.arrive_and_wait();
  for (std::thread& other : others) other.join();
  count_bytes(state, dtype);
}

// The way not taken: cosines and sines of all positions in f64, which a caller would have to keep from call to call.
void make_rope_table(benchmark::State& state) {
  constexpr std::uint64_t kPairs = kShape.dim / 2;
  std::vector<float> table(kShape.tokens * kPairs * 2);
  for (auto _ : state) {
    for (std::uint64_t token = 0; token < kShape.tokens; ++token) {
      for (std::uint64_t p = 0; p < kPairs; ++p) {
        const double power = -static_cast<double>(p) / static_cast<double>(kPairs);
        const double angle = static_cast<double>(100000 + token) * std::pow(1e6, power);
        table[(token * kPairs + p) * 2] = static_cast<float>(std::cos(angle));
        table[(token * kPairs + p) * 2 + 1] = static_cast<float>(std::sin(angle));
      }
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(make_rope_table)->UseRealTime();

// One head per token: hardly anything but angles.
void rotate_one_head(benchmark::State& state) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  const Shape shape{.tokens = kShape.tokens, .heads = 1, .dim = kShape.dim};
  Buffer keys = device.allocate(shape.tokens * shape.dim * 2).value();
  keys.write(std::vector<std::byte>(keys.size_bytes())).value();
  const RopeTensor tensor = RopeTensor::in_place(MutView::token_major(keys, DType::f16, shape));
  std::vector<std::int64_t> positions(shape.tokens);
  std::iota(positions.begin(), positions.end(), 100000);
  for (auto _ : state) {
    Encoder encoder = device.encoder();
    for (std::size_t i = 0; i < kCalls; ++i) {
      rope(encoder,
           {.tensors = {&tensor, 1}, .positions = positions, .rotary = {.pairing = Pairing::halves, .theta = 1e6}});
    }
    std::move(encoder).submit().value().wait().value();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(kCalls * shape.tokens) *
                          static_cast<std::int64_t>(state.iterations()));
}
BENCHMARK(rotate_one_head)->UseRealTime();

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
BENCHMARK_CAPTURE(rotate, f16_warm_interleaved, Case{.pairing = Pairing::interleaved})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f16_warm_normed, Case{.normed = true})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, bf16_warm, Case{.dtype = DType::bf16})->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(rotate, f32_warm, Case{.dtype = DType::f32})->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rota
