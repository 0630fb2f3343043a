#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cache/kv_cache_saved_reference.h"
#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "rota/rota.h"

// Sequences as bytes, on the CPU.

namespace rota::test {

using cache::reference::saved_bytes;
using Bytes = std::vector<std::byte>;

class KvCacheSaved : public KvCacheCalls {
 protected:
  static KvGroup group() {
    KvGroup one = small_group();
    one.layers = {3};
    one.page = 64;
    one.tail = 30;
    return one;
  }
  static KvCacheSpec spec(const KvGroup& one) {
    return {.groups = {one}, .max_tokens = 1000, .max_sequences = 4, .max_step_tokens = 300};
  }

  void expect_unused_but_for(const KvCounters& before) {
    const KvCounters after = cache.counters();
    EXPECT_EQ(after.sealed.used, before.sealed.used);
    EXPECT_EQ(after.dense.used, before.dense.used);
    EXPECT_EQ(after.sinks.used, before.sinks.used);
    EXPECT_EQ(after.sealed.shared + after.dense.shared, before.sealed.shared + before.dense.shared);
    EXPECT_EQ(after.sequences, before.sequences);
    EXPECT_EQ(after.tokens, before.tokens);
  }

  // Both ways to load, and the way to read without a cache; returns the message.
  std::string refusal(const Bytes& bytes, const KvLoadOptions& options = {}, Errc code = Errc::io) {
    const KvCounters before = cache.counters();
    const auto from_memory = cache.load(bytes, options);
    const auto from_source = cache.load(source_of(bytes), options);
    expect_unused_but_for(before);
    EXPECT_FALSE(from_memory.ok());
    EXPECT_FALSE(from_source.ok());
    if (from_memory || from_source) return "";
    EXPECT_EQ(from_memory.error().code, code) << from_memory.error().message;
    EXPECT_EQ(from_source.error().code, code) << from_source.error().message;
    return from_memory.error().message;
  }

  KvCache cache = make(spec(group()));
};

}  // namespace rota::test
