#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>

#include "cache/kv_cache_saved_reference.h"
#include "core/error.h"
#include "harness/environment.h"
#include "harness/memory_ends.h"
#include "ops/store/store_reference.h"
#include "runtime/selftest.h"

// The host's memory runs out at every single allocation of a whole use of the CPU device, in turn.
// GPU drivers are left out: what they do without memory is theirs.

namespace rota::test {
namespace {

// Runs out of memory at each allocation of `use` in turn, until it has enough; with a sanitizer, at every seventh.
template <class Use>
void expect_out_of_memory_at_every_allocation(const Use& use, long at_least) {
  const auto step = static_cast<long>(number_from("ROTA_TEST_ALLOCATION_STEP", kSanitized ? 7 : 1));
  long failures = 0;
  for (long limit = 0;; limit += step) {
    ASSERT_LT(limit, 100'000) << "no end of allocations";
    allocations_left = limit;
    const Status status = use();
    allocations_left = -1;
    if (status.ok()) break;
    EXPECT_EQ(status.error().code, Errc::out_of_memory) << "at allocation " << limit << ": " << status.error().message;
    ++failures;
  }
  EXPECT_GT(failures * step, at_least) << "the limit was never met";
}

// Runs steps until one fails; fails itself if one throws.
Status open_and_store() {
  auto device = Device::open({.device = "cpu", .threads = 2});
  if (!device) return device.error();
  auto source = device->allocate(64);
  if (!source) return source.error();
  auto target = device->allocate(64);
  if (!target) return target.error();
  const std::array<std::byte, 64> bytes{};
  if (Status status = source->write(bytes); !status) return status;

  const StorePair pair{View::token_major(*source, DType::f32, {.tokens = 2, .heads = 2, .dim = 4}),
                       SlotView::head_major(*target, DType::f16, {.page_slots = 2, .heads = 2, .dim = 4})};
  const TokenRun run{.tokens = 2, .position = 0, .capacity = 2};
  Encoder encoder = device->encoder();
  store(encoder, {.pairs = {&pair, 1}, .sequences = {&run, 1}});
  auto fence = std::move(encoder).submit();
  return fence ? fence->wait() : Status(fence.error());
}

TEST(OutOfMemory, ComesBackAsAnErrorAtEveryAllocation) {
  if (const auto warm_up = Device::open({.device = "cpu"}); !warm_up) FAIL() << warm_up.error().message;
  expect_out_of_memory_at_every_allocation(open_and_store, 20);
}

// Each op alone: a run costs what the op does before memory ends, once per allocation.
TEST(OutOfMemory, ComesBackFromEveryOp) {
  for (const runtime::SelfTest& test : runtime::self_tests()) {
    SCOPED_TRACE(test.op);
    Device device = Device::open({.device = "cpu", .threads = 1}).value();
    const auto first_failure = [&]() -> Status {
      runtime::SelfTestRun run(test.op, device, device);
      test.run(run);
      for (const SelfTestResult& result : run.results()) {
        if (!result.status) return result.status;
      }
      return {};
    };
    expect_out_of_memory_at_every_allocation([&] { return core::guarded(first_failure); }, 5);
  }
}

// A cache of two layers with a sequence of 200 tokens, which were a long step.
struct CacheUnderTest {
  explicit CacheUnderTest(std::uint32_t heads = 1)
      : kv_heads(heads), cache(KvCache::create(device, spec(heads)).value()), sequence(cache.open_sequence().value()) {
    zeros.write(std::vector<std::byte>(zeros.size_bytes())).value();
    Encoder encoder = device.encoder();
    extend(encoder, sequence, 200).value();
    (void)std::move(encoder).submit();
  }

  static KvCacheSpec spec(std::uint32_t heads) {
    return {.groups = {{.layers = {0, 1}, .kv_heads = heads, .head_dim = 16, .k = turbo(4), .v = turbo(4), .tail = 0}},
            .max_tokens = 1000,
            .max_sequences = 2};
  }

  Status extend(Encoder& encoder, rota::Sequence of, std::uint64_t tokens) {
    auto step = cache.extend(encoder, of, tokens);
    if (!step) return step.error();
    const View x{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = tokens, .heads = kv_heads, .dim = 16}};
    for (const std::uint32_t layer : {0U, 1U}) {
      step->append(encoder, layer, x, x);
      if (Status status = encoder.status(); !status) return status;
      if (auto view = step->view(layer); !view) return view.error();
    }
    return {};
  }

  // Every call that changes a cache, in one encoder.
  Status change() {
    Encoder encoder = device.encoder();
    if (Status status = extend(encoder, sequence, 20); !status) return status;
    auto child = cache.fork(encoder, sequence);
    if (!child) return child.error();
    if (Status status = cache.truncate(encoder, sequence, 50); !status) return status;
    if (Status status = extend(encoder, *child, 300); !status) return status;
    if (Status status = cache.settle(encoder); !status) return status;
    if (Status status = cache.close(*child); !status) return status;
    auto fence = std::move(encoder).submit();
    return fence ? fence->wait() : Status(fence.error());
  }

  std::uint32_t kv_heads;
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  Buffer zeros = device.allocate(64).value();
  KvCache cache;
  rota::Sequence sequence;
};

TEST(OutOfMemory, LeavesACacheAsItWas) {
  long failures = 0;
  for (long limit = 0;; ++limit) {
    ASSERT_LT(limit, 100'000) << "no end of allocations";
    CacheUnderTest use;
    const KvCounters before = use.cache.counters();
    const KvPages pages = *use.cache.view({&use.sequence, 1}, 0)->k.sequences.front();
    allocations_left = limit;
    const Status status = use.change();
    allocations_left = -1;
    if (status.ok()) {
      EXPECT_EQ(use.cache.length(use.sequence).value(), 50U);
      break;
    }
    ++failures;
    EXPECT_EQ(status.error().code, Errc::out_of_memory) << "at allocation " << limit << ": " << status.error().message;
    const KvCounters after = use.cache.counters();
    EXPECT_EQ(use.cache.length(use.sequence).value(), 200U) << "at allocation " << limit;
    EXPECT_EQ(*use.cache.view({&use.sequence, 1}, 0)->k.sequences.front(), pages);
    EXPECT_EQ(after.dense.used, before.dense.used);
    EXPECT_EQ(after.sealed.used, before.sealed.used);
    EXPECT_EQ(after.step.used, before.step.used);
    EXPECT_EQ(after.sequences, 1U);
    ASSERT_TRUE(use.change().ok()) << "again, with memory";
    ASSERT_TRUE(use.cache.close(use.sequence).ok());
    const KvCounters closed = use.cache.counters();
    EXPECT_EQ(closed.dense.used + closed.sealed.used + closed.sinks.used + closed.step.used, 0U);
  }
  EXPECT_GT(failures, 100) << "the limit was never met";
}

// Pages, sequences and tokens.
std::array<std::uint64_t, 6> used_by(const KvCache& cache) {
  const KvCounters now = cache.counters();
  return {now.sealed.used, now.dense.used, now.sinks.used, now.step.used, now.sequences, now.tokens};
}

TEST(OutOfMemory, OfASaveOrALoadLeavesACacheAsItWas) {
  std::vector<std::byte> bytes;
  bytes.reserve(std::size_t{1} << 20);
  CacheUnderTest use;
  const std::vector<KvNote> notes{{200, std::vector<std::byte>(100)}};
  const auto save = [&]() -> Status {
    bytes.clear();
    return use.cache.save(use.sequence,
                          [&](std::span<const std::byte> more) -> Status {
                            bytes.insert(bytes.end(), more.begin(), more.end());
                            return {};
                          },
                          {.notes = notes});
  };
  save().value();
  const auto before = used_by(use.cache);
  expect_out_of_memory_at_every_allocation(save, 20);
  EXPECT_EQ(used_by(use.cache), before);
  const std::span<const std::byte> saved(bytes);
  for (const bool from_memory : {true, false}) {
    const auto load = [&]() -> Status {
      auto loaded = from_memory ? use.cache.load(saved) : use.cache.load(source_of(saved));
      allocations_left = -1;
      if (!loaded) {
        EXPECT_EQ(used_by(use.cache), before);
        return loaded.error();
      }
      return use.cache.close(loaded->sequence);
    };
    expect_out_of_memory_at_every_allocation(load, 20);
    EXPECT_EQ(used_by(use.cache), before);
  }
}

// Sequences whose pages share blocks of memory where one ends and the next begins. What a trim that failed has
// forgotten would be taken from others by one that does not fail.
TEST(OutOfMemory, OfATrimTakesNothingFromOthers) {
  long failures = 0;
  for (long limit = 0;; ++limit) {
    ASSERT_LT(limit, 1'000) << "no end of allocations";
    CacheUnderTest use(40);
    const std::vector<float> halves(use.zeros.size_bytes() / sizeof(float), 0.5F);
    use.zeros.write(std::as_bytes(std::span(halves))).value();
    const auto add = [&] {
      const rota::Sequence added = use.cache.open_sequence().value();
      Encoder encoder = use.device.encoder();
      use.extend(encoder, added, 200).value();
      std::move(encoder).submit().value().wait().value();
      return added;
    };
    const auto bytes_of = [&](rota::Sequence sequence) {
      return cache::reference::saved_bytes(use.cache, sequence).value();
    };
    use.cache.close(add()).value();
    allocations_left = limit;
    const Status trimmed = use.cache.trim();
    allocations_left = -1;
    failures += trimmed.ok() ? 0 : 1;
    const rota::Sequence next = add();
    const std::vector<std::byte> before = bytes_of(next);
    use.cache.close(use.sequence).value();
    use.cache.trim().value();
    EXPECT_TRUE(bytes_of(next) == before) << "at allocation " << limit;
    use.cache.close(next).value();
    use.cache.trim().value();
    EXPECT_EQ(use.cache.counters().bytes_allocated(), 0U) << "at allocation " << limit;
    if (trimmed.ok()) break;
  }
  EXPECT_GT(failures, 3) << "the limit was never met";
}

// One token for each sequence in a model of 32 layers. What a step allocates follows its sequences, not its layers.
TEST(Allocations, OfAStepAreFew) {
  constexpr std::uint32_t kLayers = 32;
  for (const std::uint32_t sequences : {1U, 16U, 64U}) {
    Device device = Device::open({.device = "cpu", .threads = 1}).value();
    KvCache cache =
        KvCache::create(
            device,
            {.groups = {{.layers = first_layers(kLayers), .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4)}},
             .max_tokens = sequences * std::uint64_t{1000},
             .max_sequences = sequences})
            .value();
    const Shape shape{.tokens = sequences, .heads = 1, .dim = 16};
    const Buffer values = device.allocate(sequences * std::uint64_t{64}).value();
    const Buffer out = device.allocate(values.size_bytes()).value();
    const View x = View::token_major(values, DType::f32, shape);
    std::vector<KvExtension> extensions;
    for (std::uint32_t i = 0; i < sequences; ++i) extensions.push_back({cache.open_sequence().value(), 1});
    for (int step_number = 0; step_number < 3; ++step_number) {
      const long before = allocations;
      Encoder encoder = device.encoder();
      KvStep step = cache.extend(encoder, extensions).value();
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        step.append(encoder, layer, x, x);
        const KvView kv = step.view(layer).value();
        attend(encoder, {.q = x, .kv = kv, .out = MutView::token_major(out, DType::f32, shape), .scale = 0.25});
      }
      const Fence fence = std::move(encoder).submit().value();
      const long made = allocations - before;
      ASSERT_TRUE(fence.wait().ok());
      if (step_number == 0) continue;
      EXPECT_LT(made, 90 + 3 * static_cast<long>(sequences)) << sequences << " sequences";
    }
  }
}

// What failed in an encoder that goes on must leave nothing behind in it.
TEST(OutOfMemory, InOneCallLeavesNoTraceInAnEncoderThatIsDroppedLater) {
  long failures = 0;
  for (long limit = 0;; ++limit) {
    ASSERT_LT(limit, 100'000) << "no end of allocations";
    CacheUnderTest use;
    std::optional<Encoder> encoder = use.device.encoder();
    allocations_left = limit;
    auto child = use.cache.fork(*encoder, use.sequence);
    allocations_left = -1;
    if (child.ok()) break;
    ++failures;
    {
      Encoder other = use.device.encoder();
      ASSERT_TRUE(use.extend(other, use.sequence, 20).ok());
      ASSERT_TRUE(std::move(other).submit().ok());
    }
    const rota::Sequence fresh = use.cache.open_sequence().value();
    if (encoder->status().ok()) {
      ASSERT_TRUE(use.cache.truncate(*encoder, fresh, 0).ok());
    }
    encoder.reset();
    EXPECT_EQ(use.cache.length(use.sequence).value(), 220U) << "at allocation " << limit;
    EXPECT_TRUE(use.cache.length(fresh).ok()) << "at allocation " << limit;
    ASSERT_TRUE(use.cache.close(use.sequence).ok());
    const KvCounters closed = use.cache.counters();
    EXPECT_EQ(closed.dense.used + closed.sealed.used + closed.sinks.used + closed.step.used, 0U);
  }
  EXPECT_GT(failures, 20) << "the limit was never met";
}

// Buffers of a CPU device are not allocated by operator new: what is counted is the host's own.
TEST(HostMemory, OfACacheGrowsWithUseAndStaysWithinTheEstimate) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  const KvGroup group{.layers = {0}, .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(4), .page = 64};
  const KvCacheSpec spec{.groups = {group}, .max_tokens = 400'000, .max_sequences = 100, .max_step_tokens = 40'000};
  Buffer zeros = device.allocate(64).value();
  zeros.write(std::vector<std::byte>(zeros.size_bytes())).value();
  const std::int64_t before = live_bytes;
  KvCache cache = KvCache::create(device, spec).value();
  const auto limit = static_cast<std::int64_t>(cache.memory().host_bytes);
  EXPECT_LT(live_bytes - before, limit / 100) << "before a page is used";
  std::vector<KvExtension> all;
  for (std::uint32_t i = 0; i < spec.max_sequences; ++i) all.push_back({cache.open_sequence().value(), 400});
  const View x{.buffer = zeros, .dtype = DType::f32, .shape = {.tokens = 40'000, .heads = 1, .dim = 16}};
  std::int64_t most = 0;
  for (int i = 0; i < 10; ++i) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, all).value();
    most = std::max(most, live_bytes - before);
    step.append(encoder, 0, x, x);
    ASSERT_TRUE(std::move(encoder).submit().value().wait().ok());
  }
  // All of it while a step begins: what encoders and plans take meanwhile is the device's, so the list of pages
  // decides.
  EXPECT_LE(live_bytes - before, limit);
  EXPECT_GT(4 * most, limit) << "the estimate is far too large";
}

// A size that no machine has is refused before anything is made for it.
TEST(HostMemory, OfACacheThatCannotBeIsNotTouched) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  const KvGroup llama{.layers = first_layers(32), .kv_heads = 8, .head_dim = 128, .k = turbo(4), .v = turbo(4)};
  for (const KvCacheSpec& spec : {KvCacheSpec{.groups = {llama}, .max_tokens = std::uint64_t{1} << 34},
                                  KvCacheSpec{.groups = {llama}, .max_bytes = ~std::uint64_t{0}}}) {
    const std::int64_t before = live_bytes;
    const std::clock_t start = std::clock();  // of this process alone, whoever else the machine works for
    const auto cache = KvCache::create(device, spec);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code, Errc::out_of_memory) << cache.error().message;
    EXPECT_LT(live_bytes - before, 10'000);
    EXPECT_LT(seconds, 0.1) << "where lists for all its pages took seconds";
  }
}

TEST(OutOfMemory, OfADeviceNamesTheSize) {
  Device device = Device::open({.device = "cpu"}).value();
  const auto buffer = device.allocate(std::uint64_t{1} << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, Errc::out_of_memory);
  EXPECT_NE(buffer.error().message.find("1152921504606846976 bytes"), std::string::npos) << buffer.error().message;
}

}  // namespace
}  // namespace rota::test
