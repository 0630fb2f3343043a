#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "harness/numbers.h"
#include "harness/on_device.h"
#include "rota/rota.h"

namespace rota::test {
namespace {

// The same tokens in a cache that grows and in one that has all of its memory from the beginning.
class KvCacheGrowthOnDevice : public OnDevice {
 protected:
  static constexpr std::uint32_t kLayers = 3, kHeads = 2;
  static constexpr std::uint64_t kDim = 64, kMostTokens = 2000, kStep = 300;

  KvCacheSpec spec() const {
    return {.groups = {{.layers = first_layers(kLayers),
                        .kv_heads = kHeads,
                        .head_dim = kDim,
                        .k = turbo(4),
                        .v = turbo(4),
                        .page = 64,
                        .tail = 64}},
            .max_sequences = 2,
            .max_step_tokens = kStep};
  }
  KvCache make(bool at_once) {
    KvCacheSpec made = spec();
    made.at_once = at_once;
    if (at_once || !grows) made.max_tokens = 2 * kMostTokens;
    return KvCache::create(device, made).value();
  }

  View tokens(std::uint64_t from, std::uint64_t count) const {
    View view = View::token_major(numbers, DType::f32, {.tokens = count, .heads = kHeads, .dim = kDim});
    view.offset = from * kHeads * kDim;
    return view;
  }

  void extend(KvCache& cache, Sequence sequence, std::uint64_t count) {
    const std::uint64_t from = cache.length(sequence).value();
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, count).value();
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      step.append(encoder, layer, tokens(from + layer, count), tokens(from + layer + 7, count));
    }
    ASSERT_OK(cache.settle(encoder));  // now, not when another sequence goes on
    ASSERT_OK(std::move(encoder).submit());
  }

  std::vector<float> attend_to(const KvCache& cache, Sequence sequence, std::uint32_t layer) {
    const std::uint64_t one = 1;
    Buffer out = device.allocate(kHeads * kDim * sizeof(float)).value();
    Encoder encoder = device.encoder();
    attend(encoder, {.q = tokens(cache.length(sequence).value(), 1),
                     .kv = cache.view({&sequence, 1}, layer).value(),
                     .out = MutView::token_major(out, DType::f32, {.tokens = 1, .heads = kHeads, .dim = kDim}),
                     .scale = 0.1,
                     .query_tokens = {&one, 1}});
    std::move(encoder).submit().value().wait().value();
    std::vector<float> found(kHeads * kDim);
    out.read(std::as_writable_bytes(std::span(found))).value();
    return found;
  }

  const bool grows = device.info().limits.max_sparse_bytes > 0;
  const Buffer numbers = upload(device, normal_numbers(7, (kMostTokens + kStep) * kHeads * kDim));
};

TEST_F(KvCacheGrowthOnDevice, BitsAreThoseOfACacheThatHasItsMemoryAtOnce) {
  KvCache growing = make(false), whole = make(true);
  const Sequence a = growing.open_sequence().value(), b = whole.open_sequence().value();
  std::mt19937_64 random(1);
  while (growing.length(a).value() + kStep < kMostTokens) {
    const std::uint64_t count = random() % 3 == 0 ? 1 + random() % kStep : 1 + random() % 20;
    extend(growing, a, count);
    extend(whole, b, count);
    if (random() % 4 == 0) {  // others come and go, and their memory with them
      const Sequence other = growing.open_sequence().value();
      extend(growing, other, kStep);
      ASSERT_OK(growing.close(other));
      ASSERT_OK(growing.trim());
    }
    const auto layer = static_cast<std::uint32_t>(random() % kLayers);
    ASSERT_EQ(attend_to(growing, a, layer), attend_to(whole, b, layer)) << growing.length(a).value() << " tokens";
  }
  const KvCounters counters = growing.counters();
  EXPECT_EQ(counters.bytes_used(), whole.counters().bytes_used());
  if (grows) {
    EXPECT_LE(counters.bytes_allocated(), whole.counters().bytes_allocated());
    EXPECT_OK(growing.trim());
    EXPECT_EQ(growing.counters().bytes_allocated(), growing.counters().bytes_used());
    EXPECT_OK(growing.close(a));
    EXPECT_OK(growing.trim());
    EXPECT_EQ(growing.counters().bytes_allocated(), 0U);
  } else {
    EXPECT_EQ(counters.bytes_allocated(), whole.counters().bytes_allocated());
    expect_error(KvCache::create(device, spec()), Errc::invalid_argument, {"max_tokens is missing", "taken at once"});
  }
}

TEST_F(KvCacheGrowthOnDevice, ManyCachesShareTheDevicesMemory) {
  std::vector<KvCache> caches;
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) {
    KvCacheSpec small = spec();
    small.max_tokens = 1000 + static_cast<std::uint64_t>(i);
    caches.push_back(KvCache::create(device, small).value());
    sequences.push_back(caches.back().open_sequence().value());
  }
  for (std::size_t step = 0; step < 30; ++step) extend(caches[step % 3], sequences[step % 3], 1 + 5 * step);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<float> before = attend_to(caches[1], sequences[1], 0);
    ASSERT_OK(caches[2 * i].close(sequences[2 * i]));
    ASSERT_OK(caches[2 * i].trim());
    if (i == 1) caches.pop_back();
    EXPECT_EQ(attend_to(caches[1], sequences[1], 0), before);
  }
}

}  // namespace
}  // namespace rota::test
