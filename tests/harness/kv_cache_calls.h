#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "rota/rota.h"

// A cache's bookkeeping, on the CPU. What reaches other devices is in kv_cache_device_test.cpp.

namespace rota::test {

inline KvGroup small_group() {
  return {.layers = {0, 1}, .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4), .page = 64, .tail = 64};
}

// Two layers and zeros for everything.
class KvCacheCalls : public ::testing::Test {
 protected:
  KvCacheCalls() { zeros.write(std::vector<std::byte>(zeros.size_bytes())).value(); }

  KvCache make(const KvCacheSpec& spec) { return KvCache::create(device, spec).value(); }
  KvCache make() {
    return make({.groups = {small_group()}, .max_tokens = 2000, .max_sequences = 3, .max_step_tokens = 600});
  }

  View values(std::uint64_t tokens) const {
    return {.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = tokens, .heads = 1, .dim = 16}};
  }

  void append(Encoder& encoder, KvStep& step, std::initializer_list<std::uint32_t> layers) const {
    const View x = values(step.positions().size());
    for (const std::uint32_t layer : layers) step.append(encoder, layer, x, x);
  }

  // A whole step in a submission of its own.
  Status extend(KvCache& cache, const std::vector<KvExtension>& extensions) {
    Encoder encoder = device.encoder();
    auto step = cache.extend(encoder, extensions);
    if (!step) return step.error();
    for (const KvGroup& group : cache.spec().groups) {
      for (const std::uint32_t layer : group.layers) append(encoder, *step, {layer});
    }
    auto fence = std::move(encoder).submit();
    return fence ? fence->wait() : Status(fence.error());
  }

  Sequence sequence_of(KvCache& cache, std::uint64_t tokens) {
    const Sequence sequence = cache.open_sequence().value();
    while (tokens > 0) {
      const std::uint64_t step = std::min(tokens, cache.spec().max_step_tokens);
      extend(cache, {{sequence, step}}).value();
      tokens -= step;
    }
    return sequence;
  }

  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer zeros = device.allocate(16 * sizeof(float)).value();  // one vector, for all tokens
};

}  // namespace rota::test
