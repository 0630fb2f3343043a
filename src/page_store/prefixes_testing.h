#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "page_store/prefix_reference.h"
#include "page_store/prefixes.h"

namespace rota::page_store {

using reference::Bytes;
using reference::Engine;
using reference::MemoryMedium;
using reference::random_tokens;
using reference::Tokens;
using std::chrono::milliseconds;

inline constexpr milliseconds kLong{20'000};

inline KvGroup full_group() {
  return {.layers = {0, 2}, .kv_heads = 2, .head_dim = 32, .k = turbo(4), .v = turbo(3), .page = 128, .tail = 64};
}

inline KvGroup window_group() {
  return {.layers = {1},
          .kv_heads = 1,
          .head_dim = 64,
          .k = turbo(4),
          .v = turbo(4),
          .page = 64,
          .tail = 32,
          .sinks = 3,
          .window = 400};
}

inline KvCacheSpec spec_of(std::vector<KvGroup> groups) {
  return {.groups = std::move(groups), .max_tokens = 20'000, .max_sequences = 6, .max_step_tokens = 150};
}

class PrefixTest : public testing::Test {
 protected:
  std::shared_ptr<Prefixes> prefixes(Engine& engine, PrefixStoreOptions options = {}) {
    options.model.weights = "test";
    return Prefixes::create(medium, engine.cache, options).value();
  }

  // Stores a sequence as an engine does, after each step.
  Sequence stored(Engine& engine, Prefixes& store, const Tokens& tokens) {
    const Sequence sequence = engine.cache.open_sequence().value();
    for (std::size_t length = 0; length < tokens.size();) {
      length = std::min<std::size_t>(tokens.size(), length + 100);
      engine.extend(sequence, std::span(tokens).first(length));
      EXPECT_OK(store.put(sequence, std::span(tokens).first(length)));
    }
    EXPECT_OK(store.flush(kLong));
    return sequence;
  }

  std::shared_ptr<MemoryMedium> medium = std::make_shared<MemoryMedium>();
};

}  // namespace rota::page_store
