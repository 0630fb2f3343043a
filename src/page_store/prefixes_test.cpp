#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "page_store/prefixes_testing.h"

// Prefixes are stored behind an engine, and loaded by another: with and without windows, sinks and the engine's state.

namespace rota::page_store {
namespace {

class PrefixStores : public PrefixTest {
 protected:
  void expect_round_trip(const KvCacheSpec& spec, std::uint64_t count);

  // All pages and sinks of the sequence are those that are computed where no window lets go of any.
  static void expect_pages(Engine& engine, Sequence sequence, KvCacheSpec spec, const Tokens& tokens);
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

// It is stored after all others, and given again if that fails.
TEST_F(PrefixStoresWithASmallWindow, AFirstPageWithSinksThatWasRefusedIsGivenAgain) {
  KvGroup streaming = small_window();
  streaming.keep_sinks = true;
  const KvCacheSpec spec = spec_of({full_group(), streaming});
  Engine engine(spec);
  const Tokens tokens = random_tokens(1'250, 1);
  PageKey first;
  {
    const auto whole = prefixes(engine);
    const Sequence sequence = prompt_and_answer(engine, *whole, tokens);
    first = whole->match(tokens).value().keys.front();
    ASSERT_OK(engine.cache.close(sequence));
  }
  medium = std::make_shared<MemoryMedium>();
  const auto store = prefixes(engine);
  const ObjectName late{first, StoredPart::pages};
  medium->set({.refused = late});
  const Sequence sequence = engine.sequence_of(tokens);
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  EXPECT_EQ(store->counters().stored, 7U);
  EXPECT_EQ(store->counters().dropped_puts, 1U);
  EXPECT_FALSE(medium->objects().contains(late));
  medium->set({});
  ASSERT_OK(store->put(sequence, tokens));
  ASSERT_OK(store->flush(kLong));
  EXPECT_FALSE(medium->objects().contains(late)) << "not after each token";
  Tokens longer = tokens;
  longer.resize(tokens.size() + 256, 7);
  for (std::size_t length = tokens.size(); length < longer.size(); ++length) {
    engine.step(sequence, longer, 1);
    ASSERT_OK(store->put(sequence, std::span(longer).first(length + 1)));
  }
  ASSERT_OK(store->flush(kLong));
  EXPECT_TRUE(medium->objects().contains(late));
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

}  // namespace
}  // namespace rota::page_store
