#include <rota/store.h>

#include <array>
#include <thread>

#include "c/store_world.h"

// rota/c_store.h: every function with every kind of wrong argument, and what it does when all is well.

namespace c_test {
namespace {

class CStoreArguments : public testing::Test {
 protected:
  StoreWorld world;
  uint64_t number = 7;
  rota_sequence name{7, 7, 7};
};

TEST_F(CStoreArguments, OfPageStores) {
  Made<rota_page_store, rota_page_store_destroy> stores;
  const rota_page_store_options options = ROTA_PAGE_STORE_OPTIONS_INIT;
  ABUSE(rota_page_store_open, world.folder.url(), &options, stores.place()).may_be_null({1}).run();
  for (const char* url : {"", "abacus", "ftp://here", "file:"}) {
    rota_page_store* const none = nullptr;
    rota_page_store* result = none;
    EXPECT_EQ(rota_page_store_open(url, nullptr, &result), ROTA_INVALID_ARGUMENT) << url << rota_last_message();
    EXPECT_EQ(result, none);
  }
  rota_page_store* result = nullptr;
  EXPECT_EQ(rota_page_store_open("file:/nowhere/at/all", nullptr, &result), ROTA_IO) << rota_last_message();
}

TEST_F(CStoreArguments, OfPrefixStores) {
  Made<rota_prefix_store, rota_prefix_store_destroy> stores;
  rota_prefix_store_options options = world.options;
  options.rope = "yarn 4";
  options.salt = "16 random bytes.";
  options.salt_bytes = 16;
  options.deadline_ms = ROTA_NONE;
  const rota_prefix_store_options* const chosen = &options;
  auto create = ABUSE(rota_prefix_store_create, world.pages, world.cache, chosen, stores.place());
  create.run();
  create.refused_if<2>("weights", [](auto& o) { o.weights = nullptr; })
      .refused_if<2>("salt", [](auto& o) { o.salt = nullptr; })
      .refused_if<2>("needs_state", [](auto& o) { o.needs_state = 2; });
  options.weights = "";
  EXPECT_EQ(rota_prefix_store_create(world.pages, world.cache, &options, stores.place()), ROTA_INVALID_ARGUMENT);
  ABUSE(rota_prefix_store_page, static_cast<const rota_prefix_store*>(world.store), &number).run();
  EXPECT_EQ(number, kPage);
}

TEST_F(CStoreArguments, OfMatchAndLoad) {
  Made<rota_prefix_match, rota_prefix_match_destroy> matches;
  const int32_t* const tokens = world.tokens.data();
  ABUSE(rota_prefix_store_match, world.store, tokens, size_t{200}, matches.place()).run();
  must(rota_prefix_store_match(world.store, nullptr, 0, matches.place()));
  const rota_prefix_match* const match = world.match;
  ABUSE(rota_prefix_match_tokens, match, &number).run();
  EXPECT_EQ(number, 0U);
  ABUSE(rota_prefix_store_load, world.store, match, &name, &number, null<int(void*, const void*, size_t)>(),
        null<void>())
      .may_be_null({4, 5})
      .run();
}

TEST_F(CStoreArguments, OfPuts) {
  const int32_t* const tokens = world.tokens.data();
  ABUSE(rota_prefix_store_put, world.store, world.sequence, tokens, size_t{300}).run();
  EXPECT_EQ(rota_prefix_store_put(world.store, world.sequence, tokens, 100), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_prefix_store_put(world.store, {1, 2, 3}, tokens, 300), ROTA_INVALID_ARGUMENT);
  const void* const state = "state";
  ABUSE(rota_prefix_store_put_state, world.store, tokens, size_t{128}, state, size_t{5}).run();
  EXPECT_EQ(rota_prefix_store_put_state(world.store, tokens, 129, state, 5), ROTA_INVALID_ARGUMENT);
  ABUSE(rota_prefix_store_flush, world.store, uint64_t{ROTA_NONE}).run();
  rota_prefix_store_options others = world.options;
  others.weights = "others";
  Made<rota_prefix_store, rota_prefix_store_destroy> stores;
  rota_prefix_store** const store = stores.place();
  must(rota_prefix_store_create(world.pages, world.cache, &others, store));
  world.step(1);  // in an encoder that stays open
  EXPECT_EQ(rota_prefix_store_put(*store, world.sequence, tokens, 301), ROTA_BUSY) << rota_last_message();
}

TEST_F(CStoreArguments, OfCounters) {
  const rota_prefix_store* const store = world.store;
  rota_prefix_counters counters = ROTA_PREFIX_COUNTERS_INIT;
  ABUSE(rota_prefix_store_counters, store, &counters).run();
  std::array<char, 32> text{};
  ABUSE(rota_prefix_store_last_error, store, text.data(), text.size()).run();
  EXPECT_EQ(rota_prefix_store_last_error(store, text.data(), 0), ROTA_INVALID_ARGUMENT);
}

TEST_F(CStoreArguments, OfDestroying) {
  end_strangers(world, "rota_page_store_destroy", rota_page_store_destroy);
  end_strangers(world, "rota_prefix_store_destroy", rota_prefix_store_destroy);
  end_strangers(world, "rota_prefix_match_destroy", rota_prefix_match_destroy);
  // Each library names the other's handles.
  EXPECT_EQ(rota_kv_cache_trim(reinterpret_cast<rota_kv_cache*>(world.match)), ROTA_INVALID_ARGUMENT);
  EXPECT_STREQ(rota_last_message(), "rota_kv_cache_trim: cache is a rota_prefix_match; wanted a rota_kv_cache");
  EXPECT_EQ(rota_prefix_match_tokens(reinterpret_cast<rota_prefix_match*>(world.fence), &number),
            ROTA_INVALID_ARGUMENT);
  EXPECT_STREQ(rota_last_message(), "rota_prefix_match_tokens: match is a rota_fence; wanted a rota_prefix_match");
}

TEST_F(CStoreArguments, OfStructInit) {
  const auto by_name = rota_page_store_struct_init;
  std::set<std::string> seen;
  EXPECT_INIT(rota_page_store_options, ROTA_PAGE_STORE_OPTIONS_INIT)
  EXPECT_INIT(rota_prefix_store_options, ROTA_PREFIX_STORE_OPTIONS_INIT)
  EXPECT_INIT(rota_prefix_counters, ROTA_PREFIX_COUNTERS_INIT)
  EXPECT_EQ(seen, init_macros_of("rota/c_store.h"));
  rota_prefix_counters counters;
  ABUSE(rota_page_store_struct_init, "rota_prefix_counters", static_cast<void*>(&counters), sizeof(counters)).run();
  EXPECT_EQ(rota_page_store_struct_init("rota_view", &counters, sizeof(counters)), ROTA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rota_last_message()).find("a struct of rota/c_store.h"), std::string::npos);
}

// The last of the suite: nothing that the header declares was left out above.
TEST_F(CStoreArguments, OfEveryFunctionOfTheHeader) {
  const std::set<std::string> declared = functions_of("rota/c_store.h");
  EXPECT_GE(declared.size(), 15U);
  EXPECT_EQ(called(), declared);
}

TEST(CStore, DefaultsAreThoseOfCpp) {
  const rota_page_store_options pages = ROTA_PAGE_STORE_OPTIONS_INIT;
  EXPECT_EQ(pages.max_bytes, ROTA_NONE);
  EXPECT_FALSE(rota::PageStoreOptions{}.max_bytes);
  EXPECT_EQ(rota::PageStoreOptions{}.deadline, std::chrono::seconds(2)) << "as the header says";
  const rota_prefix_store_options c = ROTA_PREFIX_STORE_OPTIONS_INIT;
  const rota::PrefixStoreOptions cpp{.model = {}};
  EXPECT_EQ(c.max_queued_puts, cpp.max_queued_puts);
  EXPECT_EQ(c.needs_state != 0, cpp.needs_state);
  EXPECT_EQ(cpp.deadline, std::chrono::seconds(1)) << "as the header says";
}

// What is put of one cache is loaded into another, and as C++ finds it.
TEST(CStore, PagesAreSharedByCaches) {
  StoreWorld world;
  world.decode(299);
  world.decode(1);                     // seals what was behind the tail
  EXPECT_EQ(world.stored(600), 384U);  // whole pages behind a tail of 128
  EXPECT_EQ(world.stored(600), 384U) << "what was put is not put again";

  rota_kv_cache* other = nullptr;
  must(rota_kv_cache_create(world.device, &world.spec, &other));
  rota_prefix_store* const store = world.create(other, world.options);
  rota_prefix_match* match = nullptr;
  must(rota_prefix_store_match(store, world.tokens.data(), 599, &match));
  uint64_t tokens = 0, length = 0;
  must(rota_prefix_match_tokens(match, &tokens));
  EXPECT_EQ(tokens, 384U);
  // Handles keep what they need.
  rota_kv_cache_destroy(other);
  rota_page_store_destroy(std::exchange(world.pages, nullptr));
  rota_sequence loaded{};
  tokens = 0;
  must(rota_prefix_store_load(store, match, &loaded, &tokens, nullptr, nullptr));
  EXPECT_EQ(tokens, 384U);
  const rota_prefix_counters found = StoreWorld::counters(store);
  EXPECT_EQ(found.matched, 3U);
  EXPECT_EQ(found.missed, 1U);
  EXPECT_EQ(found.loaded, 3U);
  EXPECT_GT(found.loaded_bytes, 0U);
  EXPECT_EQ(found.failed_calls, 0U);
  rota_prefix_match_destroy(match);
  rota_prefix_store_destroy(store);

  must(rota_page_store_open(world.folder.url(), nullptr, &world.pages));
  auto pages = rota::PageStore::open(world.folder.url()).value();
  EXPECT_EQ(pages.stat(std::chrono::steady_clock::now() + std::chrono::seconds(5)).value().pages, 3U);
  rota_prefix_store* const back = world.create(world.cache, world.options);
  must(rota_prefix_store_match(back, world.tokens.data(), 600, &match));
  must(rota_prefix_store_load(back, match, &loaded, &tokens, nullptr, nullptr));
  must(rota_kv_cache_length(world.cache, loaded, &length));
  EXPECT_EQ(length, 384U);
  rota_prefix_match_destroy(match);
  rota_prefix_store_destroy(back);
}

TEST(CStore, SaltAndRopeKeepTenantsApart) {
  StoreWorld world;
  ASSERT_EQ(world.stored(300), 128U);
  const auto found = [&](auto change) {
    rota_prefix_store_options options = world.options;
    change(options);
    rota_prefix_store* const store = world.create(world.cache, options);
    rota_prefix_match* match = nullptr;
    uint64_t tokens = 0;
    must(rota_prefix_store_match(store, world.tokens.data(), 300, &match));
    must(rota_prefix_match_tokens(match, &tokens));
    rota_prefix_match_destroy(match);
    rota_prefix_store_destroy(store);
    return tokens;
  };
  EXPECT_EQ(found([](auto& o) { o.rope = ""; }), 128U);
  EXPECT_EQ(found([](auto& o) { o.struct_size = offsetof(rota_prefix_store_options, rope), o.rope = "x"; }), 128U);
  EXPECT_EQ(found([](auto& o) { o.rope = "yarn 4"; }), 0U);
  EXPECT_EQ(found([](auto& o) { o.salt = "salt", o.salt_bytes = 4; }), 0U);
  EXPECT_EQ(found([](auto& o) { o.weights = "others"; }), 0U);
}

TEST(CStore, StatesComeWithTheirPrefix) {
  StoreWorld world;
  world.options.needs_state = 1;
  rota_prefix_store* const store = world.create(world.cache, world.options);
  must(rota_prefix_store_put(store, world.sequence, world.tokens.data(), 300));
  must(rota_prefix_store_put_state(store, world.tokens.data(), 128, "a state", 7));
  must(rota_prefix_store_flush(store, 20'000));
  rota_prefix_match* match = nullptr;
  must(rota_prefix_store_match(store, world.tokens.data(), 300, &match));
  rota_sequence sequence{1, 2, 3};
  uint64_t tokens = 7;
  std::vector<unsigned char> state;
  must(rota_prefix_store_load(store, match, &sequence, &tokens, append_bytes, &state));
  EXPECT_EQ(tokens, 128U);
  EXPECT_EQ(std::string(state.begin(), state.end()), "a state");
  must(rota_kv_cache_close(world.cache, sequence));

  rota_kv_counters before = ROTA_KV_COUNTERS_INIT, after = ROTA_KV_COUNTERS_INIT;
  must(rota_kv_cache_counters(world.cache, &before));
  sequence = {1, 2, 3};
  const auto refuse = [](void*, const void*, size_t) { return 7; };
  EXPECT_EQ(rota_prefix_store_load(store, match, &sequence, &tokens, refuse, nullptr), ROTA_IO);
  EXPECT_STREQ(rota_last_message(), "rota_prefix_store_load: write_state's result is 7; wanted 0");
  EXPECT_EQ(sequence.generation, 3U);
  must(rota_kv_cache_counters(world.cache, &after));
  EXPECT_EQ(after.sequences, before.sequences) << "a sequence that nobody has";
  rota_prefix_match_destroy(match);
  rota_prefix_store_destroy(store);
}

TEST(CStore, FlushIsBusyWhileThereAreMore) {
  StoreWorld world;
  const std::vector<char> state(1U << 20);
  rota_status status = ROTA_OK;
  for (int tries = 0; tries < 100 && status == ROTA_OK; ++tries) {
    for (int i = 0; i < 4; ++i) {
      ++world.tokens[0];
      must(rota_prefix_store_put_state(world.store, world.tokens.data(), 128, state.data(), state.size()));
    }
    status = rota_prefix_store_flush(world.store, 0);
  }
  EXPECT_EQ(status, ROTA_BUSY);
  must(rota_prefix_store_flush(world.store, 60'000));
  EXPECT_EQ(StoreWorld::counters(world.store).queued_puts, 0U);
}

TEST(CStore, AStoreThatIsGoneIsNoError) {
  StoreWorld world;
  std::array<char, 256> text{};
  text.fill('x');
  must(rota_prefix_store_last_error(world.store, text.data(), text.size()));
  EXPECT_STREQ(text.data(), "");
  world.folder.lose();
  must(rota_prefix_store_put(world.store, world.sequence, world.tokens.data(), 300));
  must(rota_prefix_store_flush(world.store, 20'000));
  const rota_prefix_counters found = StoreWorld::counters(world.store);
  EXPECT_EQ(found.stored, 0U);
  EXPECT_EQ(found.dropped_puts, 1U);
  EXPECT_GT(found.failed_calls, 0U);
  must(rota_prefix_store_last_error(world.store, text.data(), text.size()));
  const std::string whole = text.data();
  EXPECT_GT(whole.size(), 10U);
  text.fill('x');
  must(rota_prefix_store_last_error(world.store, text.data(), 5));
  EXPECT_EQ(text.data(), whole.substr(0, 4));
  EXPECT_EQ(text[5], 'x');
  must(rota_prefix_store_last_error(world.store, text.data(), 1));
  EXPECT_STREQ(text.data(), "");
}

}  // namespace
}  // namespace c_test
