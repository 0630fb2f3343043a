#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/saved_header.h"
#include "harness/kv_cache_saved.h"
#include "rota/rota.h"

// Saves and loads beside other calls, and where pages are short.

namespace rota::test {
namespace {

TEST_F(KvCacheSaved, OpenEncodersMakeASequenceBusy) {
  const Sequence sequence = sequence_of(cache, 150);
  {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 1).value();
    EXPECT_EQ(saved_bytes(cache, sequence).error().code, Errc::busy);
    ASSERT_OK(std::move(encoder).submit());
    EXPECT_EQ(saved_bytes(cache, sequence).error().code, Errc::invalid_argument) << "a layer is missing";
    Encoder other = device.encoder();
    append(other, step, {3});
    EXPECT_EQ(saved_bytes(cache, sequence).error().code, Errc::busy);
    ASSERT_OK(std::move(other).submit());
  }
  EXPECT_EQ(verify_saved(source_of(saved_bytes(cache, sequence).value()))->end, 151U);
}

TEST_F(KvCacheSaved, ASequenceLeavesAFullCacheAndReturns) {
  KvCacheSpec small = spec(group());
  small.max_tokens = 256;
  small.max_sequences = 1;
  cache = make(small);
  const Sequence sequence = sequence_of(cache, 256);
  const Bytes bytes = saved_bytes(cache, sequence).value();
  EXPECT_EQ(cache.load(bytes).error().code, Errc::out_of_pages);
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(cache.load(bytes)->length, 256U);
}

// Its pages stay as they are for the reader, whatever becomes of them for the writer.
TEST_F(KvCacheSaved, ASequenceGoesOnWhileItIsSaved) {
  KvCacheSpec wide = spec(group());
  wide.max_tokens = 4000;
  cache = make(wide);
  const Sequence sequence = sequence_of(cache, 280);
  const Bytes wanted = saved_bytes(cache, sequence).value();
  for (int at = 0; at < 12; ++at) {
    Encoder forking = device.encoder();
    const Sequence fork = cache.fork(forking, sequence).value();
    ASSERT_OK(std::move(forking).submit());
    Bytes found;
    int call = 0;
    const Status status = cache.save(fork, [&](std::span<const std::byte> more) -> Status {
      found.insert(found.end(), more.begin(), more.end());
      if (call++ != at) return {};
      Encoder encoder = device.encoder();
      if (Status cut = cache.truncate(encoder, fork, 200); !cut) return cut;
      if (auto fence = std::move(encoder).submit(); !fence) return fence.error();
      if (Status extended = extend(cache, {{fork, 250}}); !extended) return extended;
      return cache.close(fork);
    });
    ASSERT_OK(status);
    EXPECT_EQ(found, wanted) << "after call " << at;
    EXPECT_EQ(cache.counters().sequences, 1U);
  }
  ASSERT_OK(cache.close(sequence));
  const KvCounters counters = cache.counters();
  EXPECT_EQ(counters.sealed.used + counters.dense.used + counters.sinks.used, 0U);
}

TEST_F(KvCacheSaved, AThreadSavesAndLoadsWhileAnotherDecodes) {
  KvCacheSpec wide = spec(group());
  wide.max_tokens = 20'000;
  device = Device::open({.device = "cpu", .threads = 2}).value();
  zeros = device.allocate(16 * sizeof(float)).value();
  zeros.write(Bytes(zeros.size_bytes())).value();
  cache = make(wide);
  const Sequence kept = sequence_of(cache, 290);
  const Bytes wanted = saved_bytes(cache, kept).value();
  // Pages of a sequence that was closed may wait for the other thread's encoder.
  const auto load = [&](bool from_memory) {
    for (;;) {
      auto loaded = from_memory ? cache.load(wanted) : cache.load(source_of(wanted));
      if (loaded || loaded.error().code != Errc::busy) return loaded;
      EXPECT_OK(cache.wait(kept, std::chrono::seconds(10)));
    }
  };
  std::thread other([&] {
    for (int i = 0; i < 40; ++i) {
      auto loaded = load(i % 2 == 0);
      ASSERT_OK(loaded);
      auto found = saved_bytes(cache, loaded->sequence);
      ASSERT_OK(found);
      EXPECT_EQ(*found, wanted);
      ASSERT_OK(cache.close(loaded->sequence));
    }
  });
  const Sequence decoded = sequence_of(cache, 1);
  for (int i = 0; i < 400; ++i) EXPECT_OK(extend(cache, {{decoded, 1}}));
  other.join();
}

// Its newest pages are copied before the first byte comes: the pools have no room for others meanwhile.
TEST_F(KvCacheSaved, ASequenceDecodesOnWhileItIsSaved) {
  KvCacheSpec small = spec(group());
  small.max_sequences = 1;
  cache = make(small);
  const Sequence sequence = sequence_of(cache, 280);
  const Bytes wanted = saved_bytes(cache, sequence).value();
  Bytes found;
  const Status saved = cache.save(sequence, [&](std::span<const std::byte> more) -> Status {
    if (found.empty()) {
      for (int i = 0; i < 300; ++i) {
        if (Status status = extend(cache, {{sequence, 1}}); !status) return status;
      }
    }
    found.insert(found.end(), more.begin(), more.end());
    return {};
  });
  ASSERT_OK(saved);
  EXPECT_EQ(found, wanted);
}

// Tokens older than the tail are taken back when the save has read them.
TEST_F(KvCacheSaved, PagesThatASaveUsesMakeOthersWait) {
  KvGroup dense = group();
  dense.k = dense.v = DType::f16;
  dense.tail = 0;
  KvCacheSpec full = spec(dense);
  full.max_tokens = 256;
  full.max_sequences = 1;
  cache = make(full);
  const Sequence sequence = sequence_of(cache, 256);
  const auto truncate = [&] {
    Encoder encoder = device.encoder();
    return cache.truncate(encoder, sequence, 100);
  };
  bool looked = false;
  const Status saved = cache.save(sequence, [&](std::span<const std::byte>) -> Status {
    if (std::exchange(looked, true)) return {};
    const Status status = truncate();
    EXPECT_TRUE(!status && status.error().code == Errc::busy);
    EXPECT_EQ(cache.wait(sequence, std::chrono::milliseconds(1)).error().code, Errc::busy);
    return {};
  });
  ASSERT_OK(saved);
  EXPECT_OK(cache.wait(sequence, std::chrono::milliseconds(1000)));
  EXPECT_OK(truncate());
}

TEST_F(KvCacheSaved, ALoadThatLacksPagesIsBusyWhileAnEncoderHasSome) {
  KvCacheSpec small = spec(group());
  small.max_tokens = 300;
  small.max_sequences = 2;
  cache = make(small);
  const Sequence sequence = sequence_of(cache, 290);
  const Bytes bytes = saved_bytes(cache, sequence).value();
  Encoder encoder = device.encoder();
  ASSERT_OK(cache.truncate(encoder, sequence, 280));
  ASSERT_OK(cache.close(sequence));
  EXPECT_EQ(cache.load(bytes).error().code, Errc::busy);
  ASSERT_OK(std::move(encoder).submit());
  EXPECT_OK(cache.load(bytes));
}

TEST_F(KvCacheSaved, ARefusedSaveChangesNothing) {
  KvCacheSpec paced = spec(group());
  paced.seal_within = 64;
  cache = make(paced);
  const Sequence sequence = sequence_of(cache, 95);
  for (int i = 0; i < 4; ++i) ASSERT_OK(extend(cache, {{sequence, 1}}));
  const KvCounters before = cache.counters();
  EXPECT_FALSE(saved_bytes(cache, sequence, {.begin = 3}).ok());
  EXPECT_FALSE(saved_bytes(cache, sequence, {.end = 128}).ok());
  EXPECT_EQ(cache.save(sequence, ByteSink()).error().code, Errc::invalid_argument);
  EXPECT_EQ(cache.load(ByteSource()).error().code, Errc::invalid_argument);
  EXPECT_EQ(cache.counters().seals, before.seals);
  expect_unused_but_for(before);
}

// A store puts pages away as they are sealed: that hastens nothing.
TEST_F(KvCacheSaved, SealedPagesAreSavedWithoutSealingOthers) {
  KvCacheSpec paced = spec(group());
  paced.groups[0].layers = first_layers(4);
  paced.seal_within = 64;
  cache = make(paced);
  const Sequence sequence = sequence_of(cache, 150);  // the second page is due with 158
  for (int i = 0; i < 15; ++i) ASSERT_OK(extend(cache, {{sequence, 1}}));
  const KvCounters before = cache.counters();
  const Bytes part = saved_bytes(cache, sequence, {.end = 64}).value();
  EXPECT_EQ(cache.counters().seals, before.seals);
  const Bytes whole = saved_bytes(cache, sequence).value();
  EXPECT_GT(cache.counters().seals, before.seals) << "the page that had begun";
  EXPECT_EQ(saved_bytes(cache, sequence, {.end = 64}).value(), part);
  EXPECT_OK(cache.load(part));
}

// Page by page, as a store of pages has them, into a cache that is no larger than it must be.
TEST_F(KvCacheSaved, PagesOfAWindowComeBackOneByOne) {
  KvGroup windowed = group();
  windowed.tail = 128;
  windowed.window = 512;
  KvCacheSpec tight = spec(windowed);
  tight.max_tokens = 3000;
  tight.max_sequences = 1;
  cache = make(tight);
  std::vector<Bytes> parts;
  Sequence sequence = cache.open_sequence().value();
  while (parts.size() < 30) {
    ASSERT_OK(extend(cache, {{sequence, 64}}));
    const std::uint64_t begin = parts.size() * 64;
    if (auto part = saved_bytes(cache, sequence, {.begin = begin, .end = begin + 64}); part) parts.push_back(*part);
  }
  ASSERT_OK(cache.close(sequence));
  sequence = cache.load(parts.front())->sequence;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    ASSERT_TRUE((cache.load(parts[i], {.onto = sequence})).ok()) << i;
  }
  EXPECT_OK(extend(cache, {{sequence, 300}}));
}

// A step on a prefix can be given up, whatever its window is.
TEST_F(KvCacheSaved, AStepOnAPrefixCanBeGivenUp) {
  for (const std::uint64_t window : {127U, 128U, 129U, 130U}) {
    KvGroup windowed = group();
    windowed.tail = 64;
    windowed.window = window;
    KvCacheSpec wide = spec(windowed);
    wide.max_tokens = 4000;
    cache = make(wide);
    const Sequence sequence = sequence_of(cache, 700);
    const Bytes bytes = saved_bytes(cache, sequence).value();
    for (std::uint64_t tokens = 0; tokens <= 640; tokens += 64) {
      const auto loaded = cache.load(bytes, {.tokens = tokens});
      if (!loaded) continue;
      Encoder encoder = device.encoder();
      const KvStep step = cache.extend(encoder, loaded->sequence, 1).value();
      EXPECT_TRUE((cache.truncate(encoder, loaded->sequence, tokens)).ok()) << window << ", " << tokens;
      ASSERT_OK(cache.close(loaded->sequence));
    }
  }
}

TEST_F(KvCacheSaved, ASequenceThatIsLoadedOntoIsBusy) {
  KvCacheSpec wide = spec(group());
  wide.max_tokens = 4000;
  cache = make(wide);
  const Sequence sequence = sequence_of(cache, 300);
  const Bytes rest = saved_bytes(cache, sequence, {.begin = 64, .end = 192}).value();
  const Sequence target = cache.load(saved_bytes(cache, sequence, {.end = 64}).value())->sequence;
  const auto load_beside = [&](const Bytes& part, const std::function<void()>& beside) {
    const auto bytes = source_of(part);
    int calls = 0;
    const auto source = [&](std::span<std::byte> to) {
      if (++calls == 3) beside();  // the header was read in two
      return bytes(to);
    };
    return cache.load(source, {.onto = target});
  };
  const auto loaded = load_beside(rest, [&] { EXPECT_OK(extend(cache, {{sequence, 1}})); });
  ASSERT_OK(loaded);
  const Bytes more = saved_bytes(cache, sequence, {.begin = 192, .end = 256}).value();
  const auto again = load_beside(more, [&] {
    Encoder encoder = device.encoder();
    const auto step = cache.extend(encoder, target, 1);
    EXPECT_TRUE(!step && step.error().code == Errc::busy);
    const auto saved = saved_bytes(cache, target);
    EXPECT_TRUE(!saved && saved.error().code == Errc::busy);
    EXPECT_EQ(cache.wait(target, std::chrono::milliseconds(1)).error().code, Errc::busy);
  });
  ASSERT_OK(again);
  EXPECT_EQ(cache.length(target).value(), 256U);
}

TEST_F(KvCacheSaved, APrefixIsTheBeginningOfTheBytes) {
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 290)).value();
  const auto loads = [&](std::size_t size) {
    const auto loaded = cache.load(std::span(bytes).first(size), {.tokens = 64});
    return loaded && cache.close(loaded->sequence).ok();
  };
  std::size_t needed = bytes.size();
  while (needed > 0 && loads(needed - 1)) --needed;
  EXPECT_LT(needed, bytes.size() / 2);
}

TEST_F(KvCacheSaved, ThreadsOfTheEngineMayFail) {
  int calls = 0;
  device = Device::open({.device = "cpu",
                         .threads = 4,
                         .parallel_for =
                             [&](std::uint32_t, const std::function<void(std::uint32_t)>&) {
                               ++calls;
                               throw std::runtime_error("no threads");
                             }})
               .value();
  zeros = device.allocate(16 * sizeof(float)).value();
  zeros.write(Bytes(zeros.size_bytes())).value();
  cache = make(spec(group()));
  const Bytes note(std::size_t{20} << 20);
  const std::vector<KvNote> notes{{64, note}};
  const Bytes bytes = saved_bytes(cache, sequence_of(cache, 290), {.notes = notes}).value();
  calls = 0;
  EXPECT_OK(cache.load(bytes));
  EXPECT_GT(calls, 0);
}

// 65,536 layers of 65,536 heads: more bytes than 64 bits count.
TEST(SavedHeader, SizesBeyondAllBoundsAreRefused) {
  cache::SavedLayout layout{.saved = {.end = 2'000'000'000, .groups = {{.group = {.kv_heads = 1, .head_dim = 1}}}}};
  const PageFormat format{turbo(8), KvSide::keys, 256, 128};
  layout.group_sides.assign(
      2, {.layers = 65536, .heads = 65536, .dim = 256, .format = format, .rule = {.sinks = 1, .seals = true}});
  for (const std::size_t side : {0U, 1U}) layout.side(side) = {.sealed_pages = 15'000'000, .end_page = 15'625'000};
  EXPECT_FALSE(cache::complete(layout).ok());
}

}  // namespace
}  // namespace rota::test
