#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/page_pool.h"
#include "harness/environment.h"
#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "rota/rota.h"
#include "runtime/committed_blocks.h"
#include "runtime/device_state.h"

// Memory that follows use.

namespace rota::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class KvCacheGrowth : public KvCacheCalls {
 protected:
  static KvCacheSpec without_limit() { return {.groups = {small_group()}, .max_sequences = 3, .max_step_tokens = 600}; }

  // As many changes as pages are kept for while they are free.
  void wait_a_while(KvCache& cache) {
    constexpr int kLongest = 128;
    for (int i = 0; i <= kLongest; ++i) {
      Encoder encoder = device.encoder();
      EXPECT_OK(cache.settle(encoder));
      EXPECT_OK(std::move(encoder).submit().value().wait());
    }
  }
};

TEST_F(KvCacheGrowth, ACacheWithoutALimitTakesWhatItUses) {
  KvCache cache = make(without_limit());
  EXPECT_GT(cache.memory().max_tokens, 1'000'000U) << "as many as the machine has memory for";
  EXPECT_LE(cache.memory().bytes(), device.info().memory_bytes);
  EXPECT_EQ(cache.counters().bytes_allocated(), 0U);
  const Sequence sequence = cache.open_sequence().value();
  for (int i = 0; i < 200; ++i) {
    EXPECT_OK(extend(cache, {{sequence, 100}}));
    const KvCounters counters = cache.counters();
    for (const KvPoolCounters& pool : {counters.sealed, counters.dense, counters.sinks}) {
      EXPECT_GE(pool.allocated, pool.used);
      // A sixteenth, for keys and for values, and dense pages that a step has just left.
      EXPECT_LE(pool.allocated, pool.used + pool.used / 16 + 2 + (&pool == &counters.dense ? 2 * 3 : 0));
    }
  }
  EXPECT_OK(cache.close(sequence));
  EXPECT_GT(cache.counters().bytes_allocated(), 0U);
  EXPECT_OK(cache.trim());
  EXPECT_EQ(cache.counters().bytes_allocated(), 0U);
  EXPECT_OK(extend(cache, {{cache.open_sequence().value(), 300}}));
}

TEST_F(KvCacheGrowth, AllThatTakesMemoryAtOnceWantsALimit) {
  KvCacheSpec spec = without_limit();
  expect_error(estimate(spec), Errc::invalid_argument,
               {"max_tokens is missing, and max_bytes, too; wanted one of them"});
  spec.at_once = true;
  expect_error(KvCache::create(device, spec), Errc::invalid_argument, {"max_tokens is missing", "taken at once"});
  spec.max_tokens = 1000;
  const KvCache cache = make(spec);
  EXPECT_EQ(cache.counters().bytes_allocated() + cache.memory().counter_bytes, cache.memory().bytes());
}

TEST_F(KvCacheGrowth, AReservationIsTheEstimateAndStays) {
  KvCache cache = make();
  const auto allocated = [&] { return cache.counters().bytes_allocated() + cache.memory().counter_bytes; };
  EXPECT_OK(cache.reserve(2000));
  const std::uint64_t all = estimate(cache.spec())->bytes();
  EXPECT_EQ(allocated(), all);
  expect_error(cache.reserve(2001), Errc::invalid_argument, {"tokens is 2001", "at most the 2000"});
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(sequence_of(cache, 600));
  EXPECT_EQ(allocated(), all) << "within a reservation nothing grows";
  for (const Sequence sequence : sequences) EXPECT_OK(cache.close(sequence));
  EXPECT_OK(cache.trim());
  wait_a_while(cache);
  EXPECT_EQ(allocated(), all) << "nor is it given back";
  EXPECT_OK(cache.reserve(500));
  EXPECT_OK(cache.trim());
  KvCacheSpec smaller = cache.spec();
  smaller.max_tokens = 500;
  EXPECT_EQ(allocated(), estimate(smaller)->bytes());
  EXPECT_OK(cache.reserve(0));
  EXPECT_OK(cache.trim());
  EXPECT_EQ(cache.counters().bytes_allocated(), 0U);
}

TEST_F(KvCacheGrowth, WhatIsFreeForAWhileIsGivenBack) {
  KvCache cache = make(without_limit());
  const Sequence kept = sequence_of(cache, 100);
  const std::uint64_t few = cache.counters().bytes_allocated();
  const Sequence long_one = sequence_of(cache, 12'000);
  EXPECT_GT(cache.counters().bytes_allocated(), 10 * few);
  EXPECT_OK(cache.close(long_one));
  EXPECT_OK(extend(cache, {{kept, 1}}));
  EXPECT_GT(cache.counters().bytes_allocated(), 10 * few) << "the next step may want it";
  wait_a_while(cache);
  EXPECT_LE(cache.counters().bytes_allocated(), few);
  EXPECT_EQ(cache.length(kept).value(), 101U);
}

// Pages do not move: views of before growth are those of after it.
TEST_F(KvCacheGrowth, PagesDoNotMove) {
  KvCache cache = make(without_limit());
  const Sequence sequence = sequence_of(cache, 300);
  const KvView before = cache.view({&sequence, 1}, 0).value();
  const Sequence other = sequence_of(cache, 5000);
  EXPECT_OK(cache.close(other));
  EXPECT_OK(cache.trim());
  const KvView after = cache.view({&sequence, 1}, 0).value();
  EXPECT_EQ(*after.k.sequences.front(), *before.k.sequences.front());
  EXPECT_EQ(&runtime::Inside::of(after.k.dense.buffer)->memory(),
            &runtime::Inside::of(before.k.dense.buffer)->memory());
}

std::uint64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmData:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// While it lives the system counts what this process may use, and gives it `more` bytes than it has.
class NoMoreMemory {
 public:
  explicit NoMoreMemory(std::uint64_t more) {
    getrlimit(RLIMIT_DATA, &before_);
    const rlimit less{data_bytes() + more, before_.rlim_max};
    setrlimit(RLIMIT_DATA, &less);
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_DATA, &before_); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  rlimit before_{};
};

TEST_F(KvCacheGrowth, AFailedGrowthIsOutOfPagesAndChangesNothing) {
  constexpr std::uint64_t kOfOthers = 256 * kMiB;  // tests' own, and sanitizers'
  ASSERT_GT(data_bytes(), 0U);
  KvCacheSpec spec = without_limit();
  spec.groups[0].layers = first_layers(256);
  spec.groups[0].kv_heads = 32;  // 16 MiB in a page of dense keys
  spec.max_tokens = 1'000'000;
  spec.max_step_tokens = 4096;
  spec.layer_order = LayerOrder::together;
  std::optional<NoMoreMemory> limited(kOfOthers);
  KvCache cache = make(spec);
  const Sequence sequence = cache.open_sequence().value(), other = cache.open_sequence().value();
  {
    Encoder encoder = device.encoder();
    auto step = cache.extend(encoder, sequence, 128).value();
  }  // dropped: its pages stay allocated, and free
  EXPECT_EQ(cache.counters().bytes_used(), 0U);
  const std::uint64_t four_pages = 4 * 16 * kMiB;
  EXPECT_EQ(cache.counters().bytes_allocated(), four_pages);
  Encoder encoder = device.encoder();
  expect_error(cache.extend(encoder, sequence, 4096), Errc::out_of_pages,
               {"no memory for 124 more pages, 2080374784 bytes: the system refuses 2080374784 bytes"});
  EXPECT_OK(encoder.status());
  EXPECT_EQ(cache.length(sequence).value(), 0U);
  EXPECT_EQ(cache.counters().bytes_used(), 0U);
  EXPECT_EQ(cache.counters().bytes_allocated(), four_pages);
  expect_error(cache.reserve(100'000), Errc::out_of_pages, {"no memory for"});
  EXPECT_EQ(cache.counters().bytes_allocated(), 0U) << "all that was free was given up for it";
  EXPECT_OK(cache.extend(encoder, other, 64));  // what there is memory for goes on
  limited.reset();
  EXPECT_OK(cache.extend(encoder, sequence, 4096));
  EXPECT_OK(cache.reserve(5'000));
}

// A page that is taken for a sequence and shared with its fork in one call is committed once, also where there is no
// memory for those that come next.
TEST_F(KvCacheGrowth, WhatIsTakenAndSharedAtOnceIsCommittedOnce) {
  KvCacheSpec spec = without_limit();
  spec.groups[0].layers = first_layers(32);
  spec.groups[0].kv_heads = 32;  // 0.5 MiB in a sealed page of keys
  spec.groups[0].tail = 0;
  spec.max_tokens = 1'000'000;
  spec.max_step_tokens = 64;
  spec.layer_order = LayerOrder::together;
  // A sanitizer ends the process where it gets no memory of its own: then nothing is short.
  constexpr std::uint64_t kOfASanitizer = kSanitized ? 256 * kMiB : 0;
  for (std::uint64_t more = 1; more < 20; ++more) {
    std::optional<NoMoreMemory> limited(std::uint64_t{1} << 40);  // from the beginning, so that the system counts
    KvCache cache = make(spec);
    const Sequence sequence = cache.open_sequence().value();
    for (int page = 0; page < 40; ++page) {
      Encoder encoder = device.encoder();
      KvStep step = cache.extend(encoder, sequence, 64).value();
      const View x{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = 64, .heads = 32, .dim = 16}};
      for (const std::uint32_t layer : spec.groups[0].layers) step.append(encoder, layer, x, x);
      EXPECT_OK(std::move(encoder).submit().value().wait());
    }
    EXPECT_OK(cache.trim());  // so that the page that is due has no memory
    limited.emplace(kOfASanitizer + more * kMiB / 4);
    Encoder encoder = device.encoder();
    const auto child = cache.fork(encoder, sequence);
    limited.reset();
    EXPECT_OK(std::move(encoder).submit());
    EXPECT_OK(cache.trim());
    EXPECT_EQ(cache.counters().bytes_allocated(), cache.counters().bytes_used()) << more;
    if (child) EXPECT_OK(cache.close(*child));
    EXPECT_OK(cache.close(sequence));
    EXPECT_OK(cache.trim());
    EXPECT_EQ(cache.counters().bytes_allocated(), 0U) << more;
  }
}

// What allocated and used bytes are for public models: see docs/kv-cache.md.
TEST_F(KvCacheGrowth, AllocatedIsLittleMoreThanUsed) {
  struct Model {
    std::uint32_t layers, heads, dim;
  };
  for (const Model& model : {Model{32, 8, 128}, Model{30, 3, 64}}) {
    for (const std::uint64_t chunk : {std::uint64_t{512}, std::uint64_t{2048}}) {
      KvCache cache = make({.groups = {{.layers = first_layers(model.layers),
                                        .kv_heads = model.heads,
                                        .head_dim = model.dim,
                                        .k = turbo(4),
                                        .v = turbo(4)}},
                            .max_step_tokens = chunk});
      const Buffer row = device.allocate(std::uint64_t{4} * model.heads * model.dim).value();
      const Sequence sequence = cache.open_sequence().value();
      const auto extend = [&](std::uint64_t tokens) {
        Encoder encoder = device.encoder();
        auto step = cache.extend(encoder, sequence, tokens).value();
        const View x{.buffer = row,
                     .dtype = DType::f32,
                     .shape = {.tokens = tokens, .heads = model.heads, .dim = model.dim},
                     .token_stride = 0,
                     .head_stride = model.dim};
        for (std::uint32_t layer = 0; layer < model.layers; ++layer) step.append(encoder, layer, x, x);
        std::move(encoder).submit().value().wait().value();
      };
      const auto expect_little_more = [&] {
        const KvCounters counters = cache.counters();
        EXPECT_LE(counters.bytes_allocated(), counters.bytes_used() * 11 / 10 + 4 * kMiB)
            << counters.bytes_used() << " are used";
      };
      for (std::uint64_t done = 0; done < 2048; done += chunk) {
        extend(chunk);
        expect_little_more();
      }
      for (int i = 0; i < 160; ++i) {
        extend(1);
        expect_little_more();
      }
    }
  }
}

TEST(CommittedBlocks, ABlockStaysWhileARangeTouchesIt) {
  using Ranges = std::vector<core::ByteRange>;
  const auto text = [](const Ranges& ranges) {
    std::string all;
    for (const core::ByteRange& range : ranges) all += fmt::format("{}-{} ", range.begin, range.end);
    return all;
  };
  runtime::CommittedBlocks blocks(100);
  const Ranges first{{0, 130}, {130, 160}}, second{{160, 320}}, far{{900, 901}};
  EXPECT_EQ(text(blocks.missing(first)), "0-200 ");
  blocks.add(first);
  EXPECT_EQ(text(blocks.missing(second)), "200-400 ");
  blocks.add(second);
  EXPECT_EQ(text(blocks.missing(far)), "900-1000 ");
  blocks.add(far);
  EXPECT_EQ(text(blocks.missing(first)), "");
  EXPECT_EQ(text(blocks.only_in(first)), "0-100 ") << "the second range touches the next block";
  EXPECT_EQ(text(blocks.only_in(second)), "200-400 ");
  blocks.remove(second);
  EXPECT_EQ(text(blocks.only_in(first)), "0-200 ");
  EXPECT_EQ(text(blocks.only_in(Ranges{{0, 130}})), "0-100 ");
  blocks.remove(first);
  EXPECT_EQ(text(blocks.missing(Ranges{{50, 950}})), "0-900 ");
}

TEST(PagePool, LowPagesAreTakenFirstAndIdleOnesAreThoseThatWereFreeTwice) {
  using Pages = std::vector<std::uint32_t>;
  cache::PagePool pool(8, cache::PagePool::Memory::as_needed);
  for (std::uint32_t page = 0; page < 4; ++page) {
    pool.prepare_take();
    EXPECT_EQ(pool.take(), page);
    pool.set_committed(page, true);
  }
  pool.release(3);
  pool.release(1);
  EXPECT_EQ(pool.idle(0), Pages());
  pool.prepare_take();
  EXPECT_EQ(pool.take(), 1U);
  pool.release(1);
  EXPECT_EQ(pool.idle(0), Pages{3});
  EXPECT_EQ(pool.idle(0), (Pages{1, 3}));
  EXPECT_EQ(pool.idle(1), Pages{3}) << "the lowest is taken next";
  pool.set_reserved(2);
  EXPECT_EQ(pool.idle(0), Pages{3});
  pool.set_committed(3, false);
  pool.set_committed(3, true);
  EXPECT_EQ(pool.idle(0), Pages()) << "it has new memory";
  pool.know(6);
  EXPECT_EQ(pool.free(), 6U);
  EXPECT_FALSE(pool.is_committed(5));
  EXPECT_EQ(pool.committed(), 4U);
}

}  // namespace
}  // namespace rota::test
