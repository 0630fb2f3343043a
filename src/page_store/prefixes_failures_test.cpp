#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "page_store/prefixes_testing.h"

// Where the store is slow, full, wrong or gone, and where the caller is.

namespace rota::page_store {
namespace {

using PrefixFailures = PrefixTest;

TEST_F(PrefixFailures, AStoreThatIsGoneDelaysNobody) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(700, 1);
  medium->set({.is_gone = true});
  const Sequence sequence = stored(engine, *store, tokens);
  EXPECT_EQ(store->match(tokens).value().tokens, 0U);
  EXPECT_GE(store->counters().failed_calls, 1U);
  EXPECT_EQ(store->counters().last_error, "gone");
  EXPECT_GE(store->counters().dropped_puts, 1U);
  medium->set({});
  // It comes back, and gets what it missed.
  for (int i = 0; i < 100 && store->counters().stored < 4; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    ASSERT_OK(store->put(sequence, tokens));
    ASSERT_OK(store->flush(kLong));
  }
  EXPECT_EQ(store->match(tokens).value().tokens, 512U);
}

TEST_F(PrefixFailures, ASlowStoreIsLeftAfterTheDeadline) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine, {.deadline = milliseconds(50)});
  const Tokens tokens = random_tokens(700, 1);
  stored(engine, *store, tokens);
  const PrefixMatch match = store->match(tokens).value();
  medium->set({.takes_ms = milliseconds(10'000)});
  const auto begin = Clock::now();
  const PrefixLoaded loaded = store->load(match).value();
  EXPECT_EQ(loaded.tokens, 0U);
  EXPECT_EQ(engine.cache.length(loaded.sequence).value(), 0U);
  EXPECT_EQ(store->match(tokens).value().tokens, 0U) << "it is not asked so soon again";
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
  EXPECT_EQ(store->counters().failed_loads, 4U);
}

TEST_F(PrefixFailures, AFullQueueDropsAndSaysSo) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine, {.deadline = milliseconds(10'000), .max_queued_puts = 1});
  medium->set({.takes_ms = milliseconds(1'000)});
  std::vector<Sequence> sequences;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Tokens tokens = random_tokens(600, i);
    const Sequence sequence = engine.sequence_of(tokens);
    const auto begin = Clock::now();
    ASSERT_OK(store->put(sequence, tokens));
    EXPECT_LT(Clock::now() - begin, milliseconds(900)) << "behind the engine";
  }
  EXPECT_GE(store->counters().dropped_puts, 1U);
  medium->set({});
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->counters().queued_puts, 0U);
}

TEST_F(PrefixFailures, AFullStoreDropsAndSaysSo) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  medium->set({.is_full = true});
  stored(engine, *store, random_tokens(700, 1));
  EXPECT_EQ(store->counters().stored, 0U);
  EXPECT_GE(store->counters().dropped_puts, 1U);
  EXPECT_EQ(store->counters().last_error, "full");
}

TEST_F(PrefixFailures, APageThatWasLostEndsThePrefix) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(70 * 128, 1);
  stored(engine, *store, tokens);
  const PrefixMatch match = store->match(tokens).value();
  ASSERT_EQ(match.tokens, 69 * 128U);
  medium->lose({match.keys[40], StoredPart::pages});
  const PrefixLoaded loaded = store->load(match).value();
  EXPECT_EQ(loaded.tokens, 32 * 128U) << "the segments before it";
  EXPECT_EQ(store->counters().failed_loads, 69 - 32U);
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->match(tokens).value().tokens, 40 * 128U) << "the store itself is well";
}

// As an engine has that makes a cache for each request.
TEST_F(PrefixFailures, AllWhoUseAStoreLeaveItAlone) {
  Engine engine(spec_of({full_group()}));
  const Tokens tokens = random_tokens(700, 1);
  medium->set({.is_gone = true});
  EXPECT_EQ(prefixes(engine)->match(tokens).value().tokens, 0U);
  const auto other = prefixes(engine);
  EXPECT_EQ(other->match(tokens).value().tokens, 0U);
  EXPECT_EQ(other->counters().failed_calls, 0U);
}

// One of many, with a fourth of the pages: what the others have is stored, and found as far as there is no hole.
TEST_F(PrefixFailures, AServerThatIsDeadMakesHoles) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(100 * 128, 1);
  medium->set({.dead_of_256 = 64});
  const Sequence sequence = engine.sequence_of(tokens);
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  const std::uint64_t pages = engine.cache.sealed_length(sequence).value() / 128;
  const PrefixCounters counters = store->counters();
  EXPECT_EQ(counters.last_error, "a server is dead");
  EXPECT_GT(counters.dropped_puts, 0U);
  EXPECT_EQ(counters.stored, medium->objects().size());
  EXPECT_NEAR(static_cast<double>(counters.stored), 0.75 * static_cast<double>(pages), 20);

  medium->set({});
  const std::uint64_t before_a_hole = store->match(tokens).value().tokens;
  EXPECT_GT(before_a_hole, 0U);
  EXPECT_LT(before_a_hole, 50 * 128U);
  const PrefixLoaded loaded = store->load(store->match(tokens).value()).value();
  EXPECT_EQ(loaded.tokens, before_a_hole);
  medium->set({.dead_of_256 = 64});
  EXPECT_EQ(store->match(tokens).value().tokens, before_a_hole) << "those who are well are asked";
  medium->set({});
  // The next page of the sequence brings what is missing.
  Tokens longer = tokens;
  longer.resize(tokens.size() + 256, 7);
  engine.extend(sequence, longer);
  ASSERT_OK(store->put(sequence, longer));
  ASSERT_OK(store->flush(kLong));
  EXPECT_GE(store->match(tokens).value().tokens, 99 * 128U);
}

TEST_F(PrefixFailures, AStateThatWasLostIsNoOutage) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine, {.needs_state = true});
  const Tokens tokens = random_tokens(1'000, 1);
  stored(engine, *store, tokens);
  for (const std::size_t length : {256U, 384U}) {
    ASSERT_OK(store->put_state(std::span(tokens).first(length), Bytes(1000)));
  }
  ASSERT_OK(store->flush(kLong));
  const PrefixMatch match = store->match(tokens).value();
  ASSERT_EQ(match.tokens, 384U);
  medium->lose({match.keys.back(), StoredPart::state});
  EXPECT_EQ(store->load(match).value().tokens, 0U);
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->match(tokens).value().tokens, 256U);
}

// However many calls fail at once, and whatever waits in the queue.
TEST_F(PrefixFailures, AnOutageIsOneFailureAndEndsSoonAfterIt) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(700, 1);
  stored(engine, *store, tokens);
  medium->set({.takes_ms = milliseconds(50)});
  const Bytes state(100);
  ASSERT_OK(store->put_state(std::span(tokens).first(128), state));  // the worker has this one
  for (int i = 0; i < 20; ++i) ASSERT_OK(store->put_state(std::span(tokens).first(256), state));
  medium->set({.is_gone = true});
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->counters().failed_calls, 1U);
  EXPECT_GE(store->counters().dropped_puts, 19U);
  medium->set({});
  const auto begin = Clock::now();
  while (store->match(tokens).value().tokens == 0 && Clock::now() - begin < kLong) {
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(10'000)) << "a pause for each of 20 would have been 30 s";
}

TEST_F(PrefixFailures, AnyDurationIsTaken) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine, {.deadline = milliseconds::max()});
  const Tokens tokens = random_tokens(700, 1);
  const Sequence sequence = engine.sequence_of(tokens);
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(milliseconds::max()));
  EXPECT_EQ(store->match(tokens).value().tokens, 512U);
  EXPECT_OK(store->flush(milliseconds::min()));
}

TEST_F(PrefixFailures, TheThreadThatStoresLeavesSignalsToTheApplication) {
  Engine engine(spec_of({full_group()}));
  medium->last_put_takes_signals = true;
  stored(engine, *prefixes(engine), random_tokens(300, 1));
  EXPECT_FALSE(medium->last_put_takes_signals);
}

// One bit, anywhere: it is not served, and the page is found and removed.
TEST_F(PrefixFailures, AFlippedBitIsNotServed) {
  Engine engine(spec_of({full_group(), window_group()}));
  const Tokens tokens = random_tokens(500, 1);
  stored(engine, *prefixes(engine), tokens);
  const auto whole = medium->objects();
  const Bytes right = [&] {
    const auto store = prefixes(engine);
    const PrefixLoaded loaded = store->load(store->match(tokens).value()).value();
    Bytes bytes = engine.saved(loaded.sequence);
    EXPECT_OK(engine.cache.close(loaded.sequence));
    return bytes;
  }();
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto store = prefixes(engine);
    const PrefixMatch match = store->match(tokens).value();
    ASSERT_EQ(match.tokens, 256U);
    auto object = whole.begin();
    std::advance(object, static_cast<std::ptrdiff_t>(random() % whole.size()));
    medium->flip(object->first, random());
    const PrefixLoaded loaded = store->load(match).value();
    if (loaded.tokens > 0) {
      EXPECT_EQ(engine.saved(loaded.sequence), right) << "what it changed was not read: an older window";
    } else {
      EXPECT_EQ(store->counters().failed_loads, 2U);
      ASSERT_OK(store->flush(kLong));
      EXPECT_FALSE(medium->objects().contains(object->first));
    }
    ASSERT_OK(engine.cache.close(loaded.sequence));
    for (const auto& [name, one] : whole) ASSERT_OK(medium->put(one.first, one.second, Clock::now() + kLong));
  }
}

TEST_F(PrefixFailures, TheCachesOwnErrorsAreErrors) {
  KvCacheSpec small = spec_of({full_group()});
  small.max_tokens = 800;
  small.max_sequences = 2;
  Engine engine(small);
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(700, 1);
  stored(engine, *store, tokens);
  const PrefixMatch match = store->match(tokens).value();
  EXPECT_EQ(store->load(match).error().code, Errc::out_of_pages);
  EXPECT_EQ(store->counters().failed_calls, 0U);
  EXPECT_EQ(engine.cache.counters().sequences, 1U);
}

TEST_F(PrefixFailures, AForkHasNoneOfItsParents) {
  Engine engine(spec_of({full_group()}));
  const std::string folder = testing::TempDir() + "forked_store";
  const PageStore pages = PageStore::open("file:" + folder).value();
  std::optional<PrefixStore> store = PrefixStore::create(pages, engine.cache, {.model = {.weights = "test"}}).value();
  const Tokens tokens = random_tokens(700, 1);
  const Sequence sequence = engine.sequence_of(tokens);
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a thread that is not there would be waited for without end
    EXPECT_EQ(store->match(tokens).error().code, Errc::io);
    EXPECT_EQ(store->put(sequence, tokens).error().code, Errc::io);
    EXPECT_EQ(store->flush(kLong).error().code, Errc::io);
    EXPECT_EQ(store->counters().stored, 0U);
    store.reset();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->match(tokens).value().tokens, 512U);
  std::filesystem::remove_all(folder);
}

TEST_F(PrefixFailures, BadArgumentsAreRefused) {
  Engine engine(spec_of({full_group()}));
  EXPECT_EQ(Prefixes::create(medium, engine.cache, {}).error().code, Errc::invalid_argument) << "no weights";
  PrefixStoreOptions options;
  options.model.weights = "test";
  options.deadline = milliseconds(0);
  EXPECT_EQ(Prefixes::create(medium, engine.cache, options).error().code, Errc::invalid_argument);
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(700, 1);
  const Sequence sequence = engine.sequence_of(tokens);
  EXPECT_EQ(store->put(sequence, std::span(tokens).first(100)).error().code, Errc::invalid_argument);
  EXPECT_EQ(store->load({.tokens = 128}).error().code, Errc::invalid_argument);
  ASSERT_OK(engine.cache.close(sequence));
  EXPECT_EQ(store->put(sequence, tokens).error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace rota::page_store
