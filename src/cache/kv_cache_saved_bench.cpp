#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "cache/kv_cache_bench.h"
#include "rota/rota.h"

// A saved sequence of 32,768 tokens in the benchmarks' model: loading it from memory
// beside one memcpy of its bytes, and from a mapped file that the system has in memory beside reading it. All in turn.

namespace rota {
namespace {

using cache::kBenchDim, cache::kBenchHeads, cache::kBenchLayers;

constexpr std::uint64_t kTokens = 32768, kChunk = 2048;

#if defined(MAP_POPULATE)
constexpr int kMapping = MAP_SHARED | MAP_POPULATE;
#else
constexpr int kMapping = MAP_SHARED;
#endif

using Bytes = std::vector<std::byte>;

struct Cache {
  explicit Cache(std::uint32_t threads)
      : device(Device::open({.device = "cpu", .threads = threads}).value()),
        cache(KvCache::create(device, {.groups = {cache::bench_group()},
                                       .max_tokens = 2 * kTokens,
                                       .max_sequences = 2,
                                       .max_step_tokens = kChunk})
                  .value()) {}

  Bytes saved() {
    std::vector<float> numbers(kChunk * kBenchHeads * kBenchDim);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>((i * 2654435761U) >> 22U) * 0.001953125F - 1;
    }
    Buffer buffer = device.allocate(numbers.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(numbers))).value();
    const View x = View::token_major(buffer, DType::f32, {.tokens = kChunk, .heads = kBenchHeads, .dim = kBenchDim});
    const Sequence sequence = cache.open_sequence().value();
    for (std::uint64_t at = 0; at < kTokens; at += kChunk) {
      Encoder encoder = device.encoder();
      KvStep step = cache.extend(encoder, sequence, kChunk).value();
      for (std::uint32_t layer = 0; layer < kBenchLayers; ++layer) step.append(encoder, layer, x, x);
      std::move(encoder).submit().value().wait().value();
    }
    Bytes bytes;
    const auto append = [&](std::span<const std::byte> more) -> Status {
      bytes.insert(bytes.end(), more.begin(), more.end());
      return {};
    };
    cache.save(sequence, append).value();
    cache.close(sequence).value();
    return bytes;
  }

  void load(std::span<const std::byte> bytes) { cache.close(cache.load(bytes).value().sequence).value(); }

  Device device;
  KvCache cache;
};

// A file without a name.
class File {
 public:
  explicit File(std::span<const std::byte> bytes) : file_(std::tmpfile()), size_(bytes.size()) {
    std::fwrite(bytes.data(), 1, bytes.size(), file_);
    std::fflush(file_);
  }
  ~File() { std::fclose(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read_into(Bytes& to) const {
    for (std::size_t at = 0; at < size_;) {
      const auto found = pread(fileno(file_), &to[at], size_ - at, static_cast<off_t>(at));
      if (found <= 0) return;
      at += static_cast<std::size_t>(found);
    }
  }
  void load_into(Cache& cache) const {
    void* const mapped = mmap(nullptr, size_, PROT_READ, kMapping, fileno(file_), 0);
    cache.load({static_cast<const std::byte*>(mapped), size_});
    munmap(mapped, size_);
  }

 private:
  std::FILE* file_;
  std::size_t size_;
};

class Times {
 public:
  template <class Run>
  double measure(const Run& run) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return seconds_.back();
  }
  double median() {
    std::ranges::sort(seconds_);
    return seconds_[seconds_.size() / 2];
  }

 private:
  std::vector<double> seconds_;
};

void cache_load(benchmark::State& state) {
  Cache cache(static_cast<std::uint32_t>(state.range(0)));
  const Bytes bytes = cache.saved();
  const File file(bytes);
  Bytes copy(bytes.size());
  Times load, memcpy, load_mapped, read;
  for (auto _ : state) {
    memcpy.measure([&] { std::memcpy(copy.data(), bytes.data(), bytes.size()); });
    state.SetIterationTime(load.measure([&] { cache.load(bytes); }));
    read.measure([&] { file.read_into(copy); });
    load_mapped.measure([&] { file.load_into(cache); });
  }
  const auto rate = [&](Times& times) { return static_cast<double>(bytes.size()) / times.median() / 1e9; };
  state.counters["load GB/s"] = rate(load);
  state.counters["memcpy GB/s"] = rate(memcpy);
  state.counters["load mapped GB/s"] = rate(load_mapped);
  state.counters["read GB/s"] = rate(read);
}
BENCHMARK(cache_load)->Arg(1)->Arg(2)->UseManualTime()->Iterations(7);

}  // namespace
}  // namespace rota
