#include <cstring>
#include <utility>

#include "c/store_world.h"
#include "harness/memory_ends.h"

// The host's memory runs out at every single allocation of what an engine asks the page store, in turn.

namespace c_test {
namespace {

int take_state(void* user, const void* bytes, size_t size) {
  if (size != 7) return 1;
  std::memcpy(user, bytes, size);
  return 0;
}

// The first status that is not ROTA_OK. Whatever it made is ended.
rota_status use(StoreWorld& world) {
  rota_prefix_store* store = nullptr;
  rota_prefix_match* match = nullptr;
  rota_sequence loaded{};
  uint64_t tokens = 0;
  char text[64];
  rota_prefix_counters counters = ROTA_PREFIX_COUNTERS_INIT;
  rota_status status = rota_prefix_store_create(world.pages, world.cache, &world.options, &store);
  if (status == ROTA_OK) status = rota_prefix_store_match(store, world.tokens.data(), 300, &match);
  if (status == ROTA_OK) status = rota_prefix_store_load(store, match, &loaded, &tokens, take_state, text);
  if (status == ROTA_OK) {  // closing may want memory as well, and would leave the sequence open
    const long left = std::exchange(allocations_left, -1);
    EXPECT_EQ(rota_kv_cache_close(world.cache, loaded), ROTA_OK) << rota_last_message();
    allocations_left = left;
  }
  if (status == ROTA_OK) status = rota_prefix_store_put(store, world.sequence, world.tokens.data(), 300);
  if (status == ROTA_OK) status = rota_prefix_store_put_state(store, world.tokens.data(), 128, "a state", 7);
  if (status == ROTA_OK) status = rota_prefix_store_counters(store, &counters);
  if (status == ROTA_OK) status = rota_prefix_store_last_error(store, text, sizeof(text));
  rota_prefix_match_destroy(match);
  rota_prefix_store_destroy(store);
  return status;
}

TEST(CStoreMemory, EndsAtEachAllocationAndIsReported) {
  StoreWorld world;
  world.options.needs_state = 1;
  ASSERT_EQ(world.stored(300), 128U);
  must(rota_prefix_store_put_state(world.store, world.tokens.data(), 128, "a state", 7));
  must(rota_prefix_store_flush(world.store, 20'000));
  ASSERT_EQ(use(world), ROTA_OK) << rota_last_message();

  // A store that fails is no error: until nothing was refused any more.
  long refused = 0, reported = 0;
  for (long left = 0; left == 0; ++refused) {
    ASSERT_LT(refused, 100'000);
    allocations_left = refused;
    const rota_status status = use(world);
    left = std::exchange(allocations_left, -1);
    ASSERT_TRUE(status == ROTA_OK || status == ROTA_OUT_OF_MEMORY) << refused << ": " << rota_last_message();
    if (status == ROTA_OUT_OF_MEMORY) ++reported;
    rota_kv_counters counters = ROTA_KV_COUNTERS_INIT;
    ASSERT_EQ(rota_kv_cache_counters(world.cache, &counters), ROTA_OK);
    ASSERT_EQ(counters.sequences, 1U) << refused;
  }
  EXPECT_GT(reported, 20);
}

}  // namespace
}  // namespace c_test
