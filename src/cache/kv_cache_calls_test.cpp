#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "harness/cpu_time.h"
#include "harness/kv_cache_calls.h"
#include "harness/on_device.h"
#include "rota/rota.h"
#include "runtime/recorder.h"

// Calls: which are refused, and what becomes of them when handles, sequences and encoders end.

namespace rota::test {
namespace {

// All that can be seen of a cache.
struct Fingerprint {
  KvCounters counters;
  std::vector<std::uint64_t> lengths;
  std::vector<KvPages> pages;

  Fingerprint(const KvCache& cache, const std::vector<Sequence>& sequences) : counters(cache.counters()) {
    for (const Sequence sequence : sequences) {
      lengths.push_back(cache.length(sequence).value());
      const KvView view = cache.view({&sequence, 1}, 0).value();
      pages.push_back(*view.k.sequences.front());
      pages.push_back(*view.v.sequences.front());
    }
  }

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    const auto used = [](const KvCounters& c) {
      return std::array{c.sealed.used, c.dense.used, c.sinks.used, c.sealed.shared, c.dense.shared,
                        c.sequences,   c.tokens,     c.seals,      c.unseals,       c.copied_bytes};
    };
    return a.lengths == b.lengths && a.pages == b.pages && used(a.counters) == used(b.counters);
  }
};

template <class T>
Status status_of(const Result<T>& result) {
  return result ? Status() : Status(result.error());
}

struct BadCall {
  std::string_view text;
  std::function<Status()> call;
  Errc code = Errc::invalid_argument;
};

// A cache with all of its sequences open, and handles that name none of them.
class KvCacheBadCalls : public KvCacheCalls {
 protected:
  KvCacheBadCalls() {
    cache.close(closed).value();
    reused = cache.open_sequence().value();
    outside.index = 1000;
  }

  void expect_refused(const std::vector<BadCall>& all) {
    const Fingerprint before(cache, {sequence, second});
    for (const BadCall& bad : all) {
      expect_error(bad.call(), bad.code, {bad.text});
      EXPECT_TRUE(Fingerprint(cache, {sequence, second}) == before) << bad.text;
    }
    EXPECT_TRUE(encoder.status().ok()) << "a refused call leaves the encoder as it was";
  }

  KvCache cache = make(), other = make();
  const Sequence sequence = sequence_of(cache, 300);
  const Sequence second = sequence_of(cache, 10);
  const Sequence foreign = other.open_sequence().value();
  const Sequence closed = cache.open_sequence().value();
  Sequence reused, outside = sequence;
  Device another = Device::open({.device = "cpu", .threads = 1}).value();
  Encoder encoder = device.encoder();
  Encoder of_another = another.encoder();
};

TEST_F(KvCacheBadCalls, OfExtendAreRefusedAndChangeNothing) {
  ASSERT_EQ(reused.index, closed.index);
  Encoder spent = device.encoder();
  (void)std::move(spent).submit();
  Encoder broken = device.encoder();
  store(broken, {});
  const auto extends = [&](std::vector<KvExtension> extensions, Encoder* in = nullptr) {
    return std::function<Status()>([&, extensions = std::move(extensions), in] {
      return status_of(cache.extend(in != nullptr ? *in : encoder, extensions));
    });
  };
  expect_refused({
      {"extensions is empty", extends({})},
      {"extensions[0].sequence is of another cache", extends({{foreign, 1}})},
      {"extensions[0].sequence is of another cache", extends({{Sequence{}, 1}})},
      {"extensions[1].sequence is closed", extends({{sequence, 1}, {closed, 1}})},
      {"extensions[0].sequence is closed", extends({{outside, 1}})},
      {"extensions[1].tokens is 400; wanted at most 600 in all", extends({{sequence, 201}, {sequence, 400}})},
      {"extensions[0].tokens is 0", extends({{sequence, 0}})},
      {"extensions[0].tokens is 65537; wanted 1 to 65536", extends({{sequence, 65537}})},
      {"extensions[1].tokens is 400; wanted at most 600 in all", extends({{sequence, 201}, {second, 400}})},
      {"the encoder is submitted already", extends({{sequence, 1}}, &spent)},
      {"pairs is empty", extends({{sequence, 1}}, &broken)},
      {"encoder is of another device", extends({{sequence, 1}}, &of_another)},
  });
}

TEST_F(KvCacheBadCalls, OfAllElseAreRefusedAndChangeNothing) {
  expect_refused({
      {"length is 301; wanted at most the 300", [&] { return cache.truncate(encoder, sequence, 301); }},
      {"sequence is closed", [&] { return cache.truncate(encoder, closed, 0); }},
      {"sequence is of another cache", [&] { return cache.truncate(encoder, foreign, 0); }},
      {"encoder is of another device", [&] { return cache.truncate(of_another, sequence, 5); }},
      {"sequence is closed", [&] { return status_of(cache.fork(encoder, closed)); }},
      {"all 3 sequences are open", [&] { return status_of(cache.fork(encoder, sequence)); }, Errc::out_of_pages},
      {"all 3 sequences are open", [&] { return status_of(cache.open_sequence()); }, Errc::out_of_pages},
      {"sequence is closed", [&] { return cache.close(closed); }},
      {"sequence is of another cache", [&] { return cache.close(foreign); }},
      {"sequence is closed", [&] { return status_of(cache.length(closed)); }},
      {"sequences[0] is of another cache", [&] { return status_of(cache.view({&foreign, 1}, 0)); }},
      {"layer is 2; wanted one of the 2", [&] { return status_of(cache.view({&sequence, 1}, 2)); }},
      {"encoder is of another device", [&] { return cache.settle(of_another); }},
  });
}

TEST_F(KvCacheBadCalls, OnACacheThatWasMovedFromAreRefused) {
  KvCache gone = make();
  {
    const KvCache taken = std::move(gone);
  }
  // NOLINTBEGIN(bugprone-use-after-move): the subject
  expect_error(gone.open_sequence(), Errc::invalid_argument, {"moved from"});
  expect_error(gone.extend(encoder, sequence, 1), Errc::invalid_argument, {"moved from"});
  expect_error(gone.close(sequence), Errc::invalid_argument, {"moved from"});
  expect_error(gone.settle(encoder), Errc::invalid_argument, {"moved from"});
  expect_error(gone.non_finite(), Errc::invalid_argument, {"moved from"});
  EXPECT_EQ(gone.counters().sequences, 0U);
  EXPECT_EQ(gone.memory().bytes(), 0U);
  EXPECT_TRUE(gone.spec().groups.empty());
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(KvCacheCalls, ABadAppendIsKeptByTheEncoderAndTakesItsStepBack) {
  KvCache cache = make();
  const Sequence sequence = sequence_of(cache, 300);
  Device another = Device::open({.device = "cpu", .threads = 1}).value();
  View foreign = values(2);
  foreign.buffer = another.allocate(64).value();
  View two_heads = values(2);
  two_heads.shape.heads = 2;
  View wide = values(2);
  wide.shape.dim = 32;
  struct Bad {
    std::string_view text;
    std::function<void(Encoder&, KvStep&)> call;
  };
  const std::vector<Bad> all{
      {"layer is 2; wanted one of the 2", [&](Encoder& e, KvStep& s) { s.append(e, 2, values(2), values(2)); }},
      {"layer is 0, which was appended already", [&](Encoder& e, KvStep& s) { append(e, s, {0, 0}); }},
      {"k.shape.tokens is 1; wanted the step's 2",
       [&](Encoder& e, KvStep& s) { s.append(e, 0, values(1), values(2)); }},
      {"v.shape.tokens is 3", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), values(3)); }},
      {"k.shape.heads is 2; wanted 1", [&](Encoder& e, KvStep& s) { s.append(e, 0, two_heads, values(2)); }},
      {"v.shape.dim is 32; wanted 16", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), wide); }},
      {"another device", [&](Encoder& e, KvStep& s) { s.append(e, 0, values(2), foreign); }}};
  const Fingerprint before(cache, {sequence});
  for (const Bad& bad : all) {
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, sequence, 2).value();
    EXPECT_EQ(cache.length(sequence).value(), 302U);
    bad.call(encoder, step);
    expect_error(std::move(encoder).submit(), Errc::invalid_argument, {bad.text});
    EXPECT_TRUE(Fingerprint(cache, {sequence}) == before) << bad.text;

    Encoder later = device.encoder();
    append(later, step, {0});
    expect_error(later.status(), Errc::invalid_argument, {"the step is over"});
    expect_error(step.view(0), Errc::invalid_argument, {"the step is over"});
  }
  EXPECT_OK(extend(cache, {{sequence, 2}}));
}

TEST_F(KvCacheCalls, OutOfPagesChangesNothingAndPassesOnceSomethingCloses) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 640, .max_sequences = 2, .max_step_tokens = 64});
  const Sequence sequence = sequence_of(cache, 640);
  const Sequence second = cache.open_sequence().value();
  Status status;
  while (status.ok()) status = extend(cache, {{second, 63}});
  expect_error(status, Errc::out_of_pages, {"pages of the keys of groups[0] are in use"});
  const Fingerprint before(cache, {sequence, second});
  expect_error(extend(cache, {{sequence, 1}, {second, 63}}), Errc::out_of_pages, {"in use"});
  EXPECT_TRUE(Fingerprint(cache, {sequence, second}) == before);
  cache.close(sequence).value();
  EXPECT_OK(extend(cache, {{second, 64}}));
}

TEST_F(KvCacheCalls, AnOpenEncoderHoldsTheSequencesThatItChangedAndNoOthers) {
  using std::chrono_literals::operator""ms;
  KvCache cache = make();
  const Sequence sequence = sequence_of(cache, 10);
  const Sequence other = sequence_of(cache, 10);
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, 1).value();
  {
    Encoder second = device.encoder();
    KvStep beside = cache.extend(second, other, 1).value();
    for (const Status& status : {Status(cache.extend(second, sequence, 1).error()),
                                 Status(cache.fork(second, sequence).error()), cache.truncate(second, sequence, 0)}) {
      expect_error(status, Errc::busy, {"sequence is changed in another encoder that is not submitted yet"});
    }
    expect_error(cache.wait(sequence, 1ms), Errc::busy, {"held by an encoder after 1 ms"});
    append(second, beside, {0, 1});
    ASSERT_OK(std::move(second).submit());
  }
  EXPECT_EQ(cache.length(other).value(), 11U);
  EXPECT_OK(cache.wait(other, 0ms));
  {
    Encoder second = device.encoder();
    append(second, step, {0});
    expect_error(second.status(), Errc::invalid_argument, {"extended in another encoder that is not submitted"});
  }
  append(encoder, step, {1});
  ASSERT_OK(std::move(encoder).submit());
  EXPECT_OK(cache.wait(sequence, 0ms));

  // Appending changes nothing, so that another encoder may change other sequences.
  Encoder second = device.encoder();
  append(second, step, {0});
  Encoder third = device.encoder();
  ASSERT_OK(cache.truncate(third, other, 5));
  for (const Status& status :
       {Status(cache.extend(third, sequence, 1).error()), Status(cache.fork(third, sequence).error()),
        cache.truncate(third, sequence, 10), cache.truncate(third, sequence, 0)}) {
    expect_error(status, Errc::busy, {"layer 0 was appended in another encoder that is not submitted"});
  }
  expect_error(cache.wait(sequence, -5ms), Errc::busy, {});
  {
    const std::jthread later([&] { (void)std::move(second).submit(); });
    EXPECT_OK(cache.wait(sequence, std::chrono::milliseconds::max()));
  }
  EXPECT_OK(cache.extend(third, sequence, 1));
}

// What is recorded for many sequences at once: as many commands as for one.
TEST_F(KvCacheCalls, AStepOfManySequencesTakesAsManyCommandsAsOneOfOne) {
  const auto commands_of = [&](std::uint32_t sequences) {
    KvGroup group = small_group();
    group.tail = 0;
    KvCache cache = make({.groups = {group},
                          .max_tokens = sequences * 130ULL,
                          .max_sequences = sequences,
                          .max_step_tokens = sequences * 64ULL});
    std::vector<KvExtension> page, token;
    for (std::uint32_t i = 0; i < sequences; ++i) {
      page.push_back({cache.open_sequence().value(), 64});
      token.push_back({page.back().sequence, 1});
    }
    EXPECT_OK(extend(cache, page));
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, token).value();  // all first pages are due: sinks are copied, pages sealed
    EXPECT_OK(encoder.status());
    return runtime::Inside::of(encoder)->commands().size();
  };
  EXPECT_EQ(commands_of(1), 4U) << "sinks and pages, of keys and of values";
  EXPECT_EQ(commands_of(300), 4U);
}

TEST_F(KvCacheCalls, OpeningASequenceCostsTheSameHoweverManyAreOpen) {
  constexpr std::uint32_t kSequences = 32768, kLast = 4096, kAtOnce = 128;
  KvGroup group = small_group();
  group.window = 64;
  const KvCacheSpec spec{.groups = {group}, .max_tokens = 64, .max_sequences = kSequences, .max_step_tokens = 1};
  KvCache few = make(spec);
  KvCache many = make(spec);
  for (std::uint32_t i = 0; i < kSequences - kLast; ++i) ASSERT_OK(many.open_sequence());
  const auto time_of = [](KvCache& cache) {
    const auto start = cpu_time();
    for (std::uint32_t i = 0; i < kAtOnce; ++i) EXPECT_OK(cache.open_sequence());
    return cpu_time() - start;
  };
  std::chrono::nanoseconds of_few{}, of_many{};
  for (std::uint32_t i = 0; i < kLast / kAtOnce; ++i) {  // in turn: what slows the machine meets both
    of_few += time_of(few);
    of_many += time_of(many);
  }
  EXPECT_LT(of_many.count(), 4 * of_few.count()) << "a search through all of them takes fifteen times as long";
  expect_error(many.open_sequence(), Errc::out_of_pages, {"all 32768 sequences are open"});
}

TEST_F(KvCacheCalls, ASequenceSurvivesTheEncoderThatChangedTheOneBeforeItAtItsIndex) {
  for (const bool forked : {true, false}) {
    KvCache cache = make();
    const Sequence sequence = sequence_of(cache, 300);
    std::optional<Encoder> encoder = device.encoder();
    const Sequence child = cache.fork(*encoder, sequence).value();
    const Sequence closed = forked ? child : sequence;
    ASSERT_OK(cache.close(closed));
    const Sequence fresh = cache.open_sequence().value();
    ASSERT_EQ(fresh.index, closed.index);
    encoder.reset();
    EXPECT_EQ(cache.length(fresh).value(), 0U);
    expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
    EXPECT_OK(extend(cache, {{fresh, 1}}));
    if (forked) continue;
    // The index of the fork that never was names its next sequence only.
    const Sequence next = cache.open_sequence().value();
    ASSERT_EQ(next.index, child.index);
    EXPECT_NE(next, child);
    expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
  }
}

TEST_F(KvCacheCalls, TokensCanBeTakenBackWhenPagesAreShort) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 640, .max_step_tokens = 64});
  const Sequence sequence = cache.open_sequence().value();
  Status status;
  while (status.ok()) status = extend(cache, {{sequence, 50}});
  ASSERT_EQ(status.error().code, Errc::out_of_pages);
  const std::uint64_t length = cache.length(sequence).value();
  Encoder encoder = device.encoder();
  EXPECT_OK(cache.truncate(encoder, sequence, length - 3));
  EXPECT_OK(cache.truncate(encoder, sequence, 30));
  EXPECT_OK(std::move(encoder).submit());
  EXPECT_OK(extend(cache, {{sequence, 50}}));
}

TEST_F(KvCacheCalls, CloseInTheMiddleOfAChangeHoldsWhateverBecomesOfIt) {
  for (const bool submitted : {true, false}) {
    KvCache cache = make();
    const Sequence extended = sequence_of(cache, 300);
    const Sequence untouched = sequence_of(cache, 300);
    Encoder encoder = device.encoder();
    KvStep step = cache.extend(encoder, extended, 100).value();
    append(encoder, step, {0, 1});
    const Sequence child = cache.fork(encoder, extended).value();
    for (const Sequence sequence : {extended, untouched, child}) ASSERT_OK(cache.close(sequence));
    EXPECT_GT(cache.counters().sealed.used, 0U);
    if (submitted) {
      ASSERT_OK(std::move(encoder).submit());
    } else {
      const Encoder dropped = std::move(encoder);
    }
    const KvCounters after = cache.counters();
    EXPECT_EQ(after.sealed.used + after.dense.used + after.sinks.used + after.sequences, 0U);
  }
}

TEST_F(KvCacheCalls, AForkOfADroppedEncoderNamesNothing) {
  KvCache cache = make();
  const Sequence sequence = sequence_of(cache, 200);
  std::optional<Encoder> encoder = device.encoder();
  const Sequence child = cache.fork(*encoder, sequence).value();
  EXPECT_EQ(cache.length(child).value(), 200U);
  encoder.reset();
  expect_error(cache.length(child), Errc::invalid_argument, {"closed"});
  EXPECT_EQ(cache.counters().sequences, 1U);
  EXPECT_EQ(cache.counters().copied_bytes, 0U) << "what never ran is not counted";
}

TEST_F(KvCacheCalls, ThreadsMayShareACache) {
  KvCache cache = make({.groups = {small_group()}, .max_tokens = 4000, .max_sequences = 4});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      KvCache mine = cache;
      const Sequence sequence = mine.open_sequence().value();
      for (int steps = 0; steps < 100;) {
        const Status status = extend(mine, {{sequence, 3}});  // refused while another thread's encoder is open
        if (status.ok()) ++steps;
        (void)mine.counters();
      }
      EXPECT_EQ(mine.length(sequence).value(), 300U);
      EXPECT_OK(mine.close(sequence));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.counters().dense.used + cache.counters().sealed.used, 0U);
}

TEST_F(KvCacheCalls, HandlesMayBeDroppedInAnyOrder) {
  std::optional<KvCache> cache = make();
  const Sequence sequence = sequence_of(*cache, 300);
  std::optional<Encoder> encoder = device.encoder();
  std::optional<KvStep> step = cache->extend(*encoder, sequence, 1).value();
  append(*encoder, *step, {0, 1});
  const KvView view = step->view(0).value();
  cache.reset();
  step.reset();
  ASSERT_OK(std::move(*encoder).submit().value().wait());
  encoder.reset();
  std::vector<std::byte> bytes(view.k.dense.buffer.size_bytes());
  EXPECT_OK(view.k.dense.buffer.read(bytes));
}

}  // namespace
}  // namespace rota::test
