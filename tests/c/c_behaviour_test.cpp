#include <rota/rota.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "c/world.h"

// What the C interface does when all is well: defaults, older callers, callbacks, and every member where it belongs.

namespace c_test {
namespace {

TEST(CBehaviour, StructInitDoesWhatTheMacrosDo) {
  const auto by_name = rota_struct_init;
  std::set<std::string> seen;
  EXPECT_INIT(rota_device_info, ROTA_DEVICE_INFO_INIT)
  EXPECT_INIT(rota_backend_report, ROTA_BACKEND_REPORT_INIT)
  EXPECT_INIT(rota_device_options, ROTA_DEVICE_OPTIONS_INIT)
  EXPECT_INIT(rota_view, ROTA_VIEW_INIT)
  EXPECT_INIT(rota_slot_view, ROTA_SLOT_VIEW_INIT)
  EXPECT_INIT(rota_sealed_view, ROTA_SEALED_VIEW_INIT)
  EXPECT_INIT(rota_codec_options, ROTA_CODEC_OPTIONS_INIT)
  EXPECT_INIT(rota_kv_cache_spec, ROTA_KV_CACHE_SPEC_INIT)
  EXPECT_INIT(rota_kv_group_memory, ROTA_KV_GROUP_MEMORY_INIT)
  EXPECT_INIT(rota_kv_memory, ROTA_KV_MEMORY_INIT)
  EXPECT_INIT(rota_kv_extension, ROTA_KV_EXTENSION_INIT)
  EXPECT_INIT(rota_kv_counters, ROTA_KV_COUNTERS_INIT)
  EXPECT_INIT(rota_kv_note, ROTA_KV_NOTE_INIT)
  EXPECT_INIT(rota_kv_save_options, ROTA_KV_SAVE_OPTIONS_INIT)
  EXPECT_INIT(rota_kv_load_options, ROTA_KV_LOAD_OPTIONS_INIT)
  EXPECT_INIT(rota_kv_saved_side, ROTA_KV_SAVED_SIDE_INIT)
  EXPECT_INIT(rota_kv_saved_info, ROTA_KV_SAVED_INFO_INIT)
  EXPECT_INIT(rota_token_run, ROTA_TOKEN_RUN_INIT)
  EXPECT_INIT(rota_store_pair, ROTA_STORE_PAIR_INIT)
  EXPECT_INIT(rota_store_call, ROTA_STORE_CALL_INIT)
  EXPECT_INIT(rota_rope_sections, ROTA_ROPE_SECTIONS_INIT)
  EXPECT_INIT(rota_yarn, ROTA_YARN_INIT)
  EXPECT_INIT(rota_rotary, ROTA_ROTARY_INIT)
  EXPECT_INIT(rota_head_norm, ROTA_HEAD_NORM_INIT)
  EXPECT_INIT(rota_rope_tensor, ROTA_ROPE_TENSOR_INIT)
  EXPECT_INIT(rota_rope_call, ROTA_ROPE_CALL_INIT)
  EXPECT_INIT(rota_seal_page, ROTA_SEAL_PAGE_INIT)
  EXPECT_INIT(rota_seal_call, ROTA_SEAL_CALL_INIT)
  EXPECT_INIT(rota_unseal_page, ROTA_UNSEAL_PAGE_INIT)
  EXPECT_INIT(rota_unseal_call, ROTA_UNSEAL_CALL_INIT)
  EXPECT_INIT(rota_attend_call, ROTA_ATTEND_CALL_INIT)
  EXPECT_INIT(rota_merge_call, ROTA_MERGE_CALL_INIT)
  EXPECT_INIT(rota_word_range, ROTA_WORD_RANGE_INIT)
  EXPECT_INIT(rota_checksum_call, ROTA_CHECKSUM_CALL_INIT)
  // Their strings are constants of this program and of the library.
  rota_kv_group group;
  must(rota_struct_init("rota_kv_group", &group, sizeof(group)));
  EXPECT_STREQ(group.k, "f16");
  EXPECT_EQ(group.tail, 128U);
  rota_page_format format;
  must(rota_struct_init("rota_page_format", &format, sizeof(format)));
  EXPECT_EQ(format.tokens, 128U);
  seen.insert({"ROTA_KV_GROUP_INIT", "ROTA_PAGE_FORMAT_INIT"});

  EXPECT_EQ(seen, init_macros_of("rota/c.h"));
}

// Those that hold buffers are no constants, which static_assert could compare.
TEST(CBehaviour, DefaultsAreThoseOfCpp) {
  const rota_view view = ROTA_VIEW_INIT;
  EXPECT_EQ(view.dim_stride, rota::View{}.dim_stride);
  EXPECT_EQ(view.dtype, static_cast<uint32_t>(rota::View{}.dtype));
  const rota_slot_view slots = ROTA_SLOT_VIEW_INIT;
  EXPECT_EQ(slots.dim_stride, rota::SlotView{}.dim_stride);
  EXPECT_EQ(slots.dtype, static_cast<uint32_t>(rota::SlotView{}.dtype));
  EXPECT_EQ(slots.pages, rota::SlotShape{}.pages);
  const rota_sealed_view sealed = ROTA_SEALED_VIEW_INIT;
  EXPECT_EQ(sealed.pages, rota::SealedShape{}.pages);
  const rota_head_norm norm = ROTA_HEAD_NORM_INIT;
  EXPECT_EQ(norm.weight_offset, rota::HeadNorm{.epsilon = 1}.weight_offset);
  const rota_attend_call attend = ROTA_ATTEND_CALL_INIT;
  const rota::KvView kv;
  const rota::Attend cpp{.q = {}, .kv = kv, .out = {}, .scale = 1};
  EXPECT_EQ(attend.mask, static_cast<uint32_t>(cpp.mask));
  EXPECT_EQ(attend.arithmetic, static_cast<uint32_t>(cpp.arithmetic));
  EXPECT_FALSE(cpp.soft_cap.has_value());
  EXPECT_EQ(rota::DeviceOptions{}.device, "cpu");
  EXPECT_EQ(rota::DeviceOptions{}.threads, 0U);
}

// A caller that knows the required members alone, and has something else behind them.
TEST(CBehaviour, OlderCallersGetDefaults) {
  rota_kv_group whole = ROTA_KV_GROUP_INIT;
  whole.layers = kLayers;
  whole.layer_count = 2;
  whole.kv_heads = 2;
  whole.head_dim = 64;
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  spec.groups = &whole;
  spec.group_count = 1;
  spec.max_tokens = 1000;
  rota_kv_memory wanted = ROTA_KV_MEMORY_INIT, found = ROTA_KV_MEMORY_INIT;
  must(rota_estimate(&spec, &wanted, nullptr, 0));

  Copies copies;
  rota_kv_group* const old = copies.copy(whole, offsetof(rota_kv_group, k), 0xee);
  std::memset(static_cast<void*>(&old->k), 0xee, sizeof(rota_kv_group) - offsetof(rota_kv_group, k));
  spec.groups = old;
  must(rota_estimate(&spec, &found, nullptr, 0));
  EXPECT_EQ(bytes_of(found), bytes_of(wanted));

  // Two of them, 40 bytes apart.
  const uint32_t others[] = {7, 8};
  std::vector<unsigned char> two(2 * old->struct_size);
  std::memcpy(two.data(), old, old->struct_size);
  old->layers = others;
  std::memcpy(two.data() + old->struct_size, old, old->struct_size);
  spec.groups = reinterpret_cast<const rota_kv_group*>(two.data());
  spec.group_count = 2;
  must(rota_estimate(&spec, &found, nullptr, 0));
  EXPECT_GT(found.bytes, wanted.bytes * 3 / 2);

  // An older result is written as far as it goes.
  World world;
  rota_page_format* const format = copies.copy(world.format, offsetof(rota_page_format, tokens), 0xaa);
  std::memset(static_cast<void*>(&format->tokens), 0xaa, sizeof(rota_page_format) - offsetof(rota_page_format, tokens));
  uint8_t description[ROTA_PAGE_DESCRIPTION_BYTES];
  must(rota_page_format_describe(&world.format, description));
  must(rota_page_format_read(description, sizeof(description), format));
  EXPECT_EQ(format->head_dim, kDim);
  EXPECT_EQ(format->tokens, 0xaaaaaaaaU);
  EXPECT_EQ(format->struct_size, offsetof(rota_page_format, tokens));
}

TEST(CBehaviour, MessagesBelongToTheirThread) {
  EXPECT_EQ(rota_kv_cache_trim(nullptr), ROTA_INVALID_ARGUMENT);
  const std::string here = rota_last_message();
  EXPECT_EQ(here, "rota_kv_cache_trim: cache is NULL; wanted a rota_kv_cache");
  std::thread([&] {
    EXPECT_STREQ(rota_last_message(), "");
    EXPECT_EQ(rota_fence_wait(nullptr), ROTA_INVALID_ARGUMENT);
    EXPECT_NE(std::string(rota_last_message()).find("rota_fence_wait"), std::string::npos);
  }).join();
  EXPECT_EQ(rota_last_message(), here);
  must(rota_version(nullptr, nullptr, nullptr));
  EXPECT_EQ(rota_last_message(), here) << "a call that succeeds leaves the message";
}

// A message that is too long ends in dots, and nothing is written beyond it.
TEST(CBehaviour, LongMessagesAreCut) {
  const std::string name(5000, 'x');
  rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
  options.device = name.c_str();
  rota_device* device = nullptr;
  EXPECT_EQ(rota_device_open(&options, &device), ROTA_NO_DEVICE);
  const std::string message = rota_last_message();
  EXPECT_EQ(message.size(), 1023U);
  EXPECT_EQ(message.substr(1020), "...");
}

TEST(CBehaviour, AnEncoderKeepsItsFirstError) {
  World world;
  rota_kv_step* const step = world.step(1);
  rota_attend_call call = ROTA_ATTEND_CALL_INIT;
  call.q = &world.view;
  call.scale = 1;
  EXPECT_EQ(rota_attend(world.encoder, step, 0, &call), ROTA_INVALID_ARGUMENT);
  const std::string first = rota_last_message();
  EXPECT_NE(first.find("call.out is NULL"), std::string::npos) << first;
  call.out = &world.out;
  for (const auto& again :
       std::vector<std::function<rota_status()>>{[&] { return rota_attend(world.encoder, step, 0, &call); },
                                                 [&] { return rota_kv_step_done(step, world.encoder, 0); },
                                                 [&] { return rota_encoder_status(world.encoder); },
                                                 [&] { return rota_encoder_submit(world.encoder, nullptr); }}) {
    rota_buffer_size(nullptr, nullptr);
    EXPECT_EQ(again(), ROTA_INVALID_ARGUMENT);
    EXPECT_EQ(rota_last_message(), first);
  }
  uint64_t length = 0;
  must(rota_kv_cache_length(world.cache, world.sequence, &length));
  EXPECT_EQ(length, 300U) << "what was not submitted is taken back";
}

TEST(CBehaviour, MemoryIsReleasedOnce) {
  World world;
  std::vector<float> memory(64, 2.0F);
  std::atomic<int> released = 0;
  const auto release = [](void* user) { ++*static_cast<std::atomic<int>*>(user); };
  rota_buffer* buffer = nullptr;
  EXPECT_EQ(rota_device_wrap(world.device, memory.data(), 0, release, &released, &buffer), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(released, 0) << "the call failed";
  must(rota_device_wrap(world.device, memory.data(), memory.size() * 4, release, &released, &buffer));
  rota_word_range range = ROTA_WORD_RANGE_INIT;
  range.buffer = buffer;
  range.size_bytes = 256;
  rota_checksum_call call = ROTA_CHECKSUM_CALL_INIT;
  call.of = &range;
  call.count = 1;
  call.sums = world.other;
  must(rota_checksum(world.record(), &call));
  rota_buffer_destroy(buffer);
  EXPECT_EQ(released, 0) << "a command uses it";
  rota_fence* fence = nullptr;
  must(rota_encoder_submit(world.encoder, &fence));
  must(rota_fence_wait(fence));
  rota_fence_destroy(fence);
  rota_encoder_destroy(world.encoder);
  world.encoder = nullptr;
  uint32_t sum = 0;
  must(rota_buffer_read(world.other, &sum, 4, 0));
  EXPECT_EQ(sum, 64U * 0x40000000U);
  world.record();  // a device looks at what has finished
  must(rota_encoder_submit(world.encoder, nullptr));
  // A thread that led the commands may still hold them for a moment.
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (released == 0 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  EXPECT_EQ(released, 1);
}

struct Calls {
  std::atomic<uint32_t> loops{0}, tasks{0}, events{0};
  std::atomic<bool> named{false};
};

TEST(CBehaviour, CallbacksAreCalled) {
  Calls calls;
  rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
  options.threads = 3;
  options.parallel_for_user = &calls;
  options.parallel_for = [](void* user, uint32_t tasks, rota_task run, void* context) {
    auto& all = *static_cast<Calls*>(user);
    ++all.loops;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < tasks; ++i) {
      threads.emplace_back([=, &all] {
        ++all.tasks;
        run(context, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  options.trace_user = &calls;
  options.trace = [](void* user, const rota_trace_event* event) {
    auto& all = *static_cast<Calls*>(user);
    ++all.events;
    if (std::string(event->op) == "checksum" && std::string(event->device) == "cpu" &&
        event->struct_size == sizeof(rota_trace_event)) {
      all.named = true;
    }
  };
  rota_device* device = nullptr;
  must(rota_device_open(&options, &device));
  rota_buffer* buffer = nullptr;
  must(rota_device_allocate(device, (8U << 20) + 64, &buffer));
  const std::vector<uint32_t> ones((8U << 20) / 4, 1);
  must(rota_buffer_write(buffer, ones.data(), 8U << 20, 0));
  rota_word_range range = ROTA_WORD_RANGE_INIT;
  range.buffer = buffer;
  range.size_bytes = 8U << 20;
  rota_checksum_call call = ROTA_CHECKSUM_CALL_INIT;
  call.of = &range;
  call.count = 1;
  call.sums = buffer;
  call.sums_offset_bytes = 8U << 20;
  rota_encoder* encoder = nullptr;
  must(rota_device_encoder(device, &encoder));
  must(rota_checksum(encoder, &call));
  rota_fence* fence = nullptr;
  must(rota_encoder_submit(encoder, &fence));
  uint32_t done = 0, sum = 0;
  must(rota_fence_done(fence, &done));
  EXPECT_EQ(done, 1U) << "the caller's threads have done it";
  must(rota_buffer_read(buffer, &sum, 4, 8U << 20));
  EXPECT_EQ(sum, (8U << 20) / 4);
  rota_fence_destroy(fence);
  rota_encoder_destroy(encoder);
  rota_buffer_destroy(buffer);
  rota_device_destroy(device);
  EXPECT_GT(calls.loops, 0U);
  EXPECT_GT(calls.tasks, calls.loops);
  EXPECT_GT(calls.events, 0U);
  EXPECT_TRUE(calls.named);
}

TEST(CBehaviour, OtherLibrariesKeepMessagesHere) {
  rota_set_last_message("another library: broken");
  EXPECT_STREQ(rota_last_message(), "another library: broken");
  rota_set_last_message(rota_last_message() + std::strlen("another "));
  EXPECT_STREQ(rota_last_message(), "library: broken");
  std::thread([] { EXPECT_STREQ(rota_last_message(), ""); }).join();
  rota_set_last_message(std::string(2000, 'x').c_str());
  EXPECT_EQ(std::string(rota_last_message()), std::string(1020, 'x') + "...");
  rota_set_last_message(nullptr);
  EXPECT_STREQ(rota_last_message(), "");
}

TEST(CBehaviour, SinksAndSourcesMayRefuse) {
  World world;
  world.record();
  const auto refuse = [](void*, const void*, size_t) { return 7; };
  EXPECT_EQ(rota_kv_cache_save(world.cache, world.sequence, refuse, nullptr, nullptr), ROTA_IO);
  EXPECT_STREQ(rota_last_message(), "rota_kv_cache_save: sink's result is 7; wanted 0");
  rota_kv_counters before = ROTA_KV_COUNTERS_INIT, after = ROTA_KV_COUNTERS_INIT;
  must(rota_kv_cache_counters(world.cache, &before));
  const std::vector<unsigned char> half(world.bytes.begin(),
                                        world.bytes.begin() + static_cast<long>(world.bytes.size() / 2));
  Reader ends{&half};
  rota_sequence sequence{1, 2, 3};
  EXPECT_EQ(rota_kv_cache_load(world.cache, read_bytes, &ends, nullptr, &sequence, nullptr, nullptr), ROTA_IO);
  EXPECT_NE(std::string(rota_last_message()).find("source's result is 5"), std::string::npos) << rota_last_message();
  EXPECT_EQ(rota_kv_cache_load_bytes(world.cache, half.data(), half.size(), nullptr, &sequence, nullptr, nullptr),
            ROTA_IO);
  EXPECT_EQ(sequence.generation, 3U);
  must(rota_kv_cache_counters(world.cache, &after));
  EXPECT_EQ(after.sequences, before.sequences);
  EXPECT_EQ(after.bytes_used, before.bytes_used);
}

TEST(CBehaviour, SavedSequencesTellWhatTheyAre) {
  World world;
  rota_kv_saved_info info = ROTA_KV_SAVED_INFO_INIT;
  must(rota_kv_saved_get_info(world.saved, &info));
  EXPECT_EQ(info.end, 300U);
  EXPECT_EQ(info.bytes, world.bytes.size());
  EXPECT_EQ(info.group_count, 1U);
  EXPECT_EQ(info.note_count, 1U);
  EXPECT_EQ(info.version, rota::kSavedVersion);
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  rota_kv_saved_side k = ROTA_KV_SAVED_SIDE_INIT;
  must(rota_kv_saved_get_group(world.saved, 0, &group, &k, nullptr));
  EXPECT_STREQ(group.k, "turbo4");
  ASSERT_EQ(group.layer_count, 2U);
  EXPECT_EQ(group.layers[1], 1U);
  ASSERT_NE(group.k_options, nullptr);
  EXPECT_EQ(group.k_options->key_mean, 1U);
  EXPECT_EQ(k.end_page, 3U);
  EXPECT_EQ(k.sealed_pages, 1U);
  // The group makes a cache that loads the sequence.
  rota_kv_cache_spec spec = world.spec;
  spec.groups = &group;
  rota_kv_cache* cache = nullptr;
  must(rota_kv_cache_create(world.device, &spec, &cache));
  rota_sequence sequence{};
  uint64_t length = 0;
  rota_kv_notes* notes = nullptr;
  must(rota_kv_cache_load(cache, read_bytes, world.rewound(), nullptr, &sequence, &length, &notes));
  EXPECT_EQ(length, 300U);
  rota_kv_note note = ROTA_KV_NOTE_INIT;
  must(rota_kv_notes_get(notes, 0, &note));
  EXPECT_EQ(std::string(static_cast<const char*>(note.bytes), note.size), "ids");
  rota_kv_notes_destroy(notes);
  rota_kv_cache_destroy(cache);
}

TEST(CBehaviour, DescriptionsSayTheSameInBothLanguages) {
  const rota_kv_shared_layer shared[] = {{9, 1}};
  rota_codec_options k_options = ROTA_CODEC_OPTIONS_INIT;
  k_options.key_mean = 0;
  rota_kv_group c[2] = {ROTA_KV_GROUP_INIT, ROTA_KV_GROUP_INIT};
  c[0].layers = kLayers;
  c[0].layer_count = 2;
  c[0].kv_heads = 3;
  c[0].head_dim = 128;
  c[0].k = "turbo3";
  c[0].v = "bf16";
  c[0].k_options = &k_options;
  c[0].value_dim = 64;
  c[0].dense = ROTA_F32;
  c[0].page = 64;
  c[0].tail = 100;
  c[0].sinks = 7;
  c[0].window = 400;
  c[0].keep_sinks = 1;
  c[0].shared = shared;
  c[0].shared_count = 1;
  const uint32_t mla[] = {5};
  c[1].layers = mla;
  c[1].layer_count = 1;
  c[1].kv_heads = 1;
  c[1].head_dim = 96;
  c[1].value_dim = 64;
  c[1].v_in_k = 1;
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  spec.groups = c;
  spec.group_count = 2;
  spec.max_bytes = 50'000'000;
  spec.max_sequences = 3;
  spec.max_step_tokens = 700;
  spec.layer_order = ROTA_LAYERS_TOGETHER;
  spec.seal_within = 32;
  spec.at_once = 1;

  rota::Turbo turbo3 = rota::turbo(3);
  turbo3.key_mean = false;
  const rota::KvCacheSpec cpp{
      .groups = {{.layers = {0, 1},
                  .kv_heads = 3,
                  .head_dim = 128,
                  .value_dim = 64,
                  .k = turbo3,
                  .v = rota::DType::bf16,
                  .dense = rota::DType::f32,
                  .page = 64,
                  .tail = 100,
                  .sinks = 7,
                  .window = 400,
                  .keep_sinks = true,
                  .shared = {{.layer = 9, .from = 1}}},
                 {.layers = {5}, .kv_heads = 1, .head_dim = 96, .value_dim = 64, .v_in_k = true}},
      .max_bytes = 50'000'000,
      .at_once = true,
      .max_sequences = 3,
      .max_step_tokens = 700,
      .layer_order = rota::LayerOrder::together,
      .seal_within = 32};
  const rota::KvMemory wanted = rota::estimate(cpp).value();
  rota_kv_memory memory = ROTA_KV_MEMORY_INIT;
  rota_kv_group_memory groups[2] = {ROTA_KV_GROUP_MEMORY_INIT, ROTA_KV_GROUP_MEMORY_INIT};
  must(rota_estimate(&spec, &memory, groups, 2));
  EXPECT_EQ(memory.max_tokens, wanted.max_tokens);
  EXPECT_EQ(memory.bytes, wanted.bytes());
  EXPECT_EQ(memory.counter_bytes, wanted.counter_bytes);
  EXPECT_EQ(memory.host_bytes, wanted.host_bytes);
  for (size_t i = 0; i < 2; ++i) {
    const auto same = [](const rota_kv_pool_size& found, const rota::KvPoolSize& pool) {
      EXPECT_EQ(found.pages, pool.pages);
      EXPECT_EQ(found.page_bytes, pool.page_bytes);
    };
    same(groups[i].k_sealed, wanted.groups[i].k.sealed);
    same(groups[i].k_dense, wanted.groups[i].k.dense);
    same(groups[i].k_sinks, wanted.groups[i].k.sinks);
    same(groups[i].k_step, wanted.groups[i].k.step);
    same(groups[i].v_sealed, wanted.groups[i].v.sealed);
    same(groups[i].v_dense, wanted.groups[i].v.dense);
    same(groups[i].v_sinks, wanted.groups[i].v.sinks);
    same(groups[i].v_step, wanted.groups[i].v.step);
  }
}

}  // namespace
}  // namespace c_test
