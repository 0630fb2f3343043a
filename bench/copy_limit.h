#pragma once

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

// The limit that moving data is held against: memcpy by as many threads, in memory as the CPU device has it.

namespace rota::bench {

class LargePages {
 public:
  explicit LargePages(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)), std::free) {
    madvise(memory_.get(), bytes, MADV_HUGEPAGE);
    std::memset(memory_.get(), 0, bytes);
  }
  std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::size_t kPage = 2U << 20;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

struct Copies {
  std::size_t bytes;    // of one copy
  std::size_t count;    // in a row
  std::size_t buffers;  // that they go round
};

// The threads wait for each other after every copy. Counts bytes read and written.
inline void copy_limit(benchmark::State& state, const Copies& copies) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const std::size_t part = copies.bytes / threads;
  std::vector<LargePages> from;
  std::vector<LargePages> to;
  for (std::size_t i = 0; i < copies.buffers; ++i) {
    from.emplace_back(copies.bytes);
    to.emplace_back(copies.bytes);
  }
  std::barrier meet(static_cast<std::ptrdiff_t>(threads));
  std::atomic<bool> stop = false;
  const auto copy_part = [&](std::size_t t) {
    for (std::size_t i = 0; i < copies.count; ++i) {
      const std::size_t buffer = i % copies.buffers;
      std::memcpy(to[buffer].data() + t * part, from[buffer].data() + t * part, part);
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
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * copies.bytes * copies.count) *
                          static_cast<std::int64_t>(state.iterations()));
}

}  // namespace rota::bench
