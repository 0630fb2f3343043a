#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "rota/rota.h"

namespace rota::cache::reference {

// What a cache may allocate. Memory comes and goes, and its sequences do not notice.
class MemoryInUse {
 public:
  MemoryInUse(const Device& device, const KvCacheSpec& spec)
      : spec_(spec), grows_(!spec.at_once && device.info().limits.max_sparse_bytes > 0) {}

  static void compare(const KvCounters& counters) {
    for (const KvPoolCounters& pool : {counters.sealed, counters.dense, counters.sinks, counters.step}) {
      EXPECT_LE(pool.used, pool.allocated);
      EXPECT_LE(pool.allocated, pool.pages);
    }
  }

  // Returns what it did.
  std::string reserve_or_trim(KvCache& cache, std::mt19937_64& random) {
    if (random() % 3 != 0) {
      EXPECT_TRUE(cache.trim().ok());
      const KvCounters counters = cache.counters();
      EXPECT_LE(counters.bytes_allocated(), grows_ ? counters.bytes_used() + reserved_ : cache.memory().bytes());
      return "trim ";
    }
    const std::uint64_t tokens = random() % 2 == 0 ? 0 : 1 + random() % *spec_.max_tokens;
    EXPECT_TRUE(cache.reserve(tokens).ok());
    reserved_ = tokens == 0 ? 0 : bytes_for(tokens);
    EXPECT_GE(cache.counters().bytes_allocated(), reserved_);
    return fmt::format("reserve {} ", tokens);
  }

 private:
  std::uint64_t bytes_for(std::uint64_t tokens) const {
    KvCacheSpec smaller = spec_;
    smaller.max_tokens = tokens;
    const KvMemory memory = estimate(smaller).value();
    return memory.bytes() - memory.counter_bytes;
  }

  const KvCacheSpec& spec_;
  bool grows_;
  std::uint64_t reserved_ = 0;
};

}  // namespace rota::cache::reference
