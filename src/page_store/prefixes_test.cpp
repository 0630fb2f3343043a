#include "page_store/prefixes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "page_store/prefix_reference.h"

// Prefixes are stored behind an engine, and loaded by another: with and without windows, sinks and the engine's state,
// and where the store is slow, full, wrong or gone.

namespace rota::page_store {
namespace {

using reference::Bytes;
using reference::Engine;
using reference::MemoryMedium;
using reference::random_tokens;
using reference::Tokens;
using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};

KvGroup full_group() {
  return {.layers = {0, 2}, .kv_heads = 2, .head_dim = 32, .k = turbo(4), .v = turbo(3), .page = 128, .tail = 64};
}

KvGroup window_group() {
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

KvCacheSpec spec_of(std::vector<KvGroup> groups) {
  return {.groups = std::move(groups), .max_tokens = 20'000, .max_sequences = 6, .max_step_tokens = 150};
}

class PrefixStores : public testing::Test {
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

  void expect_round_trip(const KvCacheSpec& spec, std::uint64_t count);

  // All pages and sinks of the sequence are those that are computed where no window lets go of any.
  static void expect_pages(Engine& engine, Sequence sequence, KvCacheSpec spec, const Tokens& tokens);

  std::shared_ptr<MemoryMedium> medium = std::make_shared<MemoryMedium>();
};

using PartId = std::tuple<KvSavedPart::Kind, std::size_t, KvSide, std::uint64_t>;

std::map<PartId, Bytes> parts_of(const Bytes& saved) {
  std::map<PartId, Bytes> parts;
  const KvSavedLayout layout = lay_out_saved(verify_saved(source_of(saved)).value()).value();
  for (const KvSavedPart& part : layout.parts) {
    const auto begin = saved.begin() + static_cast<std::ptrdiff_t>(part.offset);
    parts[{part.kind, part.of, part.side, part.page}] =
        Bytes(begin, begin + static_cast<std::ptrdiff_t>(part.bytes - kSavedSumBytes));
  }
  return parts;
}

void PrefixStores::expect_pages(Engine& engine, Sequence sequence, KvCacheSpec spec, const Tokens& tokens) {
  for (KvGroup& group : spec.groups) {
    group.window.reset();
    group.keep_sinks = false;
  }
  const std::uint64_t length = engine.cache.length(sequence).value();
  Engine computing(spec);
  const Sequence computed = computing.sequence_of(tokens);
  const std::map<PartId, Bytes> all = parts_of(computing.saved(computed, length));
  const std::map<PartId, Bytes> found = parts_of(engine.saved(sequence));
  ASSERT_FALSE(found.empty());
  for (const auto& [id, bytes] : found) EXPECT_TRUE(all.at(id) == bytes) << "page " << std::get<3>(id);
}

void PrefixStores::expect_round_trip(const KvCacheSpec& spec, std::uint64_t count) {
  const Tokens tokens = random_tokens(count, 1);
  Engine maker(spec), other(spec);
  const auto made = prefixes(maker);
  const Sequence original = stored(maker, *made, tokens);
  const std::uint64_t sealed = maker.cache.sealed_length(original).value();
  ASSERT_GT(sealed, 0U);
  EXPECT_EQ(made->counters().stored, sealed / made->page());
  EXPECT_EQ(made->counters().failed_calls, 0U) << made->counters().last_error;

  const auto store = prefixes(other);
  const PrefixMatch match = store->match(tokens).value();
  EXPECT_EQ(match.tokens, sealed);
  const PrefixLoaded loaded = store->load(match).value();
  EXPECT_EQ(loaded.tokens, sealed);
  EXPECT_EQ(store->counters().loaded, sealed / store->page());
  EXPECT_EQ(store->counters().failed_calls, 0U) << store->counters().last_error;
  EXPECT_EQ(other.cache.length(loaded.sequence).value(), sealed);
  expect_pages(other, loaded.sequence, spec, tokens);
  // Whoever goes on with it has the same.
  Engine third(spec);
  const auto reads = prefixes(third);
  const Sequence twin = reads->load(match).value().sequence;
  third.extend(twin, tokens);
  other.extend(loaded.sequence, tokens);
  EXPECT_EQ(other.saved(loaded.sequence), third.saved(twin));
  // What is computed behind a loaded prefix is put as well, and nothing twice.
  const std::uint64_t more = other.cache.sealed_length(loaded.sequence).value() - sealed;
  ASSERT_OK(store->put(loaded.sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->counters().stored, more / store->page());
  EXPECT_EQ(store->counters().already_stored, 0U);
}

TEST_F(PrefixStores, APrefixOfSealedPagesComesBack) { expect_round_trip(spec_of({full_group()}), 1'000); }

TEST_F(PrefixStores, ALongPrefixIsLoadedInSegments) { expect_round_trip(spec_of({full_group()}), 9'000); }

TEST_F(PrefixStores, WindowsComeBack) { expect_round_trip(spec_of({full_group(), window_group()}), 1'000); }

TEST_F(PrefixStores, WindowsAloneComeBack) { expect_round_trip(spec_of({window_group()}), 1'000); }

TEST_F(PrefixStores, SinksThatAreKeptComeBack) {
  KvGroup streaming = window_group();
  streaming.keep_sinks = true;
  expect_round_trip(spec_of({streaming, full_group()}), 1'000);
}

TEST_F(PrefixStores, DensePagesComeBack) {
  KvGroup dense = full_group();
  dense.k = DType::f16;
  dense.v = DType::bf16;
  expect_round_trip(spec_of({dense}), 700);
}

TEST_F(PrefixStores, AShortPromptHasNoPage) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  EXPECT_EQ(store->match(random_tokens(127, 1)).value().tokens, 0U);
  EXPECT_EQ(store->load({}).value().tokens, 0U);
  EXPECT_EQ(medium->finds, 0U);
}

// All lengths of a common beginning: a few questions find each.
TEST_F(PrefixStores, TheLongestCommonPrefixMatches) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  const Tokens tokens = random_tokens(40 * 128 + 100, 1);
  stored(engine, *store, tokens);
  for (std::uint64_t same = 0; same <= 41; ++same) {
    Tokens prompt = random_tokens(50 * 128, 2);
    std::copy_n(tokens.begin(), std::min<std::size_t>(same * 128, tokens.size()), prompt.begin());
    const std::uint64_t finds = medium->finds;
    EXPECT_EQ(store->match(prompt).value().tokens, std::min<std::uint64_t>(same, 40) * 128);
    EXPECT_LE(medium->finds - finds, 3U);
  }
}

TEST_F(PrefixStores, OneTokenMakesAnotherChain) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  Tokens tokens = random_tokens(700, 1);
  stored(engine, *store, tokens);
  tokens[300] ^= 1;
  EXPECT_EQ(store->match(tokens).value().tokens, 256U);
}

TEST_F(PrefixStores, NothingIsSharedWithoutTheSaltOrTheModel) {
  Engine engine(spec_of({full_group()}));
  const Tokens tokens = random_tokens(700, 1);
  PrefixStoreOptions salted;
  salted.model.salt = Bytes(16, std::byte{7});
  stored(engine, *prefixes(engine, salted), tokens);
  EXPECT_EQ(prefixes(engine, salted)->match(tokens).value().tokens, 512U);
  EXPECT_EQ(prefixes(engine)->match(tokens).value().tokens, 0U);
  salted.model.salt.back() = std::byte{8};
  EXPECT_EQ(prefixes(engine, salted)->match(tokens).value().tokens, 0U);
  salted.model.salt.back() = std::byte{7};
  salted.model.rope = "linear 2";
  EXPECT_EQ(prefixes(engine, salted)->match(tokens).value().tokens, 0U);
}

// Pages leave a small window during a long prompt: a prefix ends where the engine went on token by token.
class PrefixStoresWithASmallWindow : public PrefixStores {
 protected:
  static KvGroup small_window() {
    KvGroup group = window_group();
    group.window = 200;
    group.tail = 128;
    return group;
  }

  Sequence prompt_and_answer(Engine& engine, Prefixes& store, const Tokens& tokens) {
    const Sequence sequence = engine.sequence_of(std::span(tokens).first(1'000));
    EXPECT_OK(store.put(sequence, tokens));
    for (std::size_t length = 1'000; length < tokens.size(); ++length) {
      engine.step(sequence, tokens, 1);
      EXPECT_OK(store.put(sequence, std::span(tokens).first(length + 1)));
    }
    EXPECT_OK(store.flush(kLong));
    return sequence;
  }

  void expect_prefix(const KvCacheSpec& spec) {
    Engine engine(spec), other(spec);
    const auto store = prefixes(engine);
    const Tokens tokens = random_tokens(1'250, 1);
    const Sequence sequence = prompt_and_answer(engine, *store, tokens);
    EXPECT_EQ(store->match(std::span(tokens).first(800)).value().tokens, 0U) << "its window was gone";
    EXPECT_EQ(store->match(std::span(tokens).first(1'000)).value().tokens, 896U);
    const auto reads = prefixes(other);
    const PrefixLoaded loaded = reads->load(reads->match(tokens).value()).value();
    ASSERT_EQ(loaded.tokens, 1'024U);
    ASSERT_EQ(engine.cache.sealed_length(sequence).value(), 1'024U);
    expect_pages(other, loaded.sequence, spec, tokens);
  }
};

TEST_F(PrefixStoresWithASmallWindow, APrefixEndsWhereItsWindowIsStored) {
  expect_prefix(spec_of({full_group(), small_window()}));
}

TEST_F(PrefixStoresWithASmallWindow, SinksThatAreKeptComeLate) {
  KvGroup streaming = small_window();
  streaming.keep_sinks = true;
  expect_prefix(spec_of({full_group(), streaming}));
}

TEST_F(PrefixStores, TheEnginesStateComesWithThePrefix) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine, {.needs_state = true});
  const Tokens tokens = random_tokens(1'000, 1);
  stored(engine, *store, tokens);
  EXPECT_EQ(store->match(tokens).value().tokens, 0U) << "there is no state yet";
  const Bytes state(1000, std::byte{42});
  ASSERT_OK(store->put_state(std::span(tokens).first(384), state));
  ASSERT_OK(store->flush(kLong));
  const PrefixMatch match = store->match(tokens).value();
  EXPECT_EQ(match.tokens, 384U);
  const PrefixLoaded loaded = store->load(match).value();
  EXPECT_EQ(loaded.tokens, 384U);
  EXPECT_EQ(loaded.state, state);
  EXPECT_EQ(store->put_state(std::span(tokens).first(385), state).error().code, Errc::invalid_argument);
}

TEST_F(PrefixStores, TokensThatWereTakenBackMakeAnotherChain) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  Tokens tokens = random_tokens(700, 1);
  const Sequence sequence = stored(engine, *store, tokens);
  {
    Encoder encoder = engine.device.encoder();
    ASSERT_OK(engine.cache.truncate(encoder, sequence, 200));
    std::move(encoder).submit().value().wait().value();
  }
  for (std::size_t i = 200; i < tokens.size(); ++i) tokens[i] ^= 1;
  engine.extend(sequence, tokens);
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->match(tokens).value().tokens, 512U);
  const PrefixLoaded loaded = store->load(store->match(tokens).value()).value();
  const Sequence again = engine.cache.load(source_of(engine.saved(sequence, 512))).value().sequence;
  EXPECT_EQ(engine.saved(loaded.sequence), engine.saved(again));
}

TEST_F(PrefixStores, AStoreThatIsGoneDelaysNobody) {
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
  for (int i = 0; i < 100 && store->counters().stored < 5; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    ASSERT_OK(store->put(sequence, tokens));
    ASSERT_OK(store->flush(kLong));
  }
  EXPECT_EQ(store->match(tokens).value().tokens, 512U);
}

TEST_F(PrefixStores, ASlowStoreIsLeftAfterTheDeadline) {
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

TEST_F(PrefixStores, AFullQueueDropsAndSaysSo) {
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

TEST_F(PrefixStores, AFullStoreDropsAndSaysSo) {
  Engine engine(spec_of({full_group()}));
  const auto store = prefixes(engine);
  medium->set({.is_full = true});
  stored(engine, *store, random_tokens(700, 1));
  EXPECT_EQ(store->counters().stored, 0U);
  EXPECT_GE(store->counters().dropped_puts, 1U);
  EXPECT_EQ(store->counters().last_error, "full");
}

TEST_F(PrefixStores, APageThatWasLostEndsThePrefix) {
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
}

// One bit, anywhere: it is not served, and the page is found and removed.
TEST_F(PrefixStores, AFlippedBitIsNotServed) {
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

TEST_F(PrefixStores, TheCachesOwnErrorsAreErrors) {
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

TEST_F(PrefixStores, AForkHasNoneOfItsParents) {
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

TEST_F(PrefixStores, BadArgumentsAreRefused) {
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
