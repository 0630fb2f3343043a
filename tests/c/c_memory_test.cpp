#include <gtest/gtest.h>
#include <rota/c.h>

#include <cstring>
#include <utility>

#include "harness/memory_ends.h"

// The host's memory runs out at every single allocation of a step, a fork, a save and a load, in turn.

namespace {

struct Saved {
  unsigned char bytes[1U << 16];
  size_t size = 0;
};
Saved saved;

int take(void*, const void* bytes, size_t size) {
  if (size > sizeof(saved.bytes) - saved.size) return 1;
  std::memcpy(saved.bytes + saved.size, bytes, size);
  saved.size += size;
  return 0;
}

struct Handles {
  rota_device* device = nullptr;
  rota_kv_cache* cache = nullptr;
  rota_buffer* buffer = nullptr;
  rota_sequence sequence{};
  rota_view view = ROTA_VIEW_INIT, out = ROTA_VIEW_INIT;
};

// The first status that is not ROTA_OK. Whatever it made is ended.
rota_status use(Handles& all) {
  rota_encoder* encoder = nullptr;
  rota_kv_step* step = nullptr;
  rota_fence* fence = nullptr;
  rota_kv_notes* notes = nullptr;
  rota_sequence forked{}, loaded{};
  rota_kv_extension extension = ROTA_KV_EXTENSION_INIT;
  extension.sequence = all.sequence;
  extension.tokens = 1;
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &all.view;
  call.out = &all.out;
  call.scale = 1;
  rota_kv_note note = ROTA_KV_NOTE_INIT;
  note.bytes = "a note that is longer than any string that needs no memory";
  note.size = std::strlen(static_cast<const char*>(note.bytes));
  rota_kv_save_options options = ROTA_KV_SAVE_OPTIONS_INIT;
  options.notes = &note;
  options.note_count = 1;
  saved.size = 0;

  rota_status status = rota_device_encoder(all.device, &encoder);
  uint64_t before = 0, after = 0;
  EXPECT_EQ(rota_kv_cache_length(all.cache, all.sequence, &before), ROTA_OK);
  if (status == ROTA_OK) status = rota_kv_cache_extend(all.cache, encoder, &extension, 1, &step);
  EXPECT_EQ(rota_kv_cache_length(all.cache, all.sequence, &after), ROTA_OK);
  EXPECT_EQ(after, before + (status == ROTA_OK ? 1 : 0)) << "a step that nobody has";
  if (status == ROTA_OK) status = rota_kv_step_append(step, encoder, 0, &all.view, &all.view);
  if (status == ROTA_OK) status = rota_attend(encoder, step, 0, &call);
  if (status == ROTA_OK) status = rota_encoder_submit(encoder, &fence);
  if (status == ROTA_OK) status = rota_fence_wait(fence);
  rota_encoder_destroy(encoder);
  encoder = nullptr;
  if (status == ROTA_OK) status = rota_device_encoder(all.device, &encoder);
  if (status == ROTA_OK) status = rota_kv_cache_fork(all.cache, encoder, all.sequence, &forked);
  rota_encoder_destroy(encoder);  // and the fork with it
  if (status == ROTA_OK) status = rota_kv_cache_save(all.cache, all.sequence, take, nullptr, &options);
  if (status == ROTA_OK) {
    status = rota_kv_cache_load_bytes(all.cache, saved.bytes, saved.size, nullptr, &loaded, nullptr, &notes);
  }
  if (status == ROTA_OK) {  // closing may want memory as well, and would leave the sequence open
    const long left = std::exchange(allocations_left, -1);
    EXPECT_EQ(rota_kv_cache_close(all.cache, loaded), ROTA_OK) << rota_last_message();
    allocations_left = left;
  }
  rota_kv_notes_destroy(notes);
  rota_fence_destroy(fence);
  rota_kv_step_destroy(step);
  return status;
}

TEST(CMemory, EndsAtEachAllocationAndIsReported) {
  Handles all;
  rota_device_options device_options = ROTA_DEVICE_OPTIONS_INIT;
  device_options.threads = 1;
  ASSERT_EQ(rota_device_open(&device_options, &all.device), ROTA_OK) << rota_last_message();
  const uint32_t layer = 0;
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  group.layers = &layer;
  group.layer_count = 1;
  group.kv_heads = 1;
  group.head_dim = 16;
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  spec.groups = &group;
  spec.group_count = 1;
  spec.max_tokens = 4096;
  spec.max_sequences = 4;
  ASSERT_EQ(rota_kv_cache_create(all.device, &spec, &all.cache), ROTA_OK) << rota_last_message();
  ASSERT_EQ(rota_kv_cache_open_sequence(all.cache, &all.sequence), ROTA_OK);
  ASSERT_EQ(rota_device_allocate(all.device, 1024, &all.buffer), ROTA_OK);
  const float zeros[256] = {};
  ASSERT_EQ(rota_buffer_write(all.buffer, zeros, sizeof(zeros), 0), ROTA_OK);
  ASSERT_EQ(rota_view_token_major(&all.view, all.buffer, ROTA_F32, 1, 1, 16), ROTA_OK);
  all.out = all.view;
  all.out.offset = 16;

  // What the library keeps for the next time is there: then each number ends another allocation.
  ASSERT_EQ(use(all), ROTA_OK) << rota_last_message();
  long refused = 0;
  for (;; ++refused) {
    ASSERT_LT(refused, 100'000);
    allocations_left = refused;
    const rota_status status = use(all);
    allocations_left = -1;
    if (status == ROTA_OK) break;
    ASSERT_EQ(status, ROTA_OUT_OF_MEMORY) << refused << ": " << rota_last_message();
    ASSERT_STREQ(rota_last_message(), "out of memory");
    // Nothing is left open: the next use would find it busy, or the cache full.
    rota_kv_counters counters = ROTA_KV_COUNTERS_INIT;
    ASSERT_EQ(rota_kv_cache_counters(all.cache, &counters), ROTA_OK);
    ASSERT_EQ(counters.sequences, 1U) << refused;
    uint64_t length = 0;
    ASSERT_EQ(rota_kv_cache_length(all.cache, all.sequence, &length), ROTA_OK);
    if (length >= 100) {  // the sequence begins again
      ASSERT_EQ(rota_kv_cache_close(all.cache, all.sequence), ROTA_OK);
      ASSERT_EQ(rota_kv_cache_open_sequence(all.cache, &all.sequence), ROTA_OK);
    }
  }
  EXPECT_GT(refused, 50);
  rota_buffer_destroy(all.buffer);
  rota_kv_cache_destroy(all.cache);
  rota_device_destroy(all.device);
}

}  // namespace
