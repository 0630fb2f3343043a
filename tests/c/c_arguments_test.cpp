#include "c/abuse.h"
#include "c/world.h"

// Every function of rota/c.h with every kind of wrong argument.

namespace c_test {
namespace {

class CArguments : public testing::Test {
 protected:
  World world;
  uint64_t number = 7, number2 = 7;
  uint32_t flag = 7;
  size_t count = 7;
  rota_sequence name{7, 7, 7};
};

TEST_F(CArguments, OfDevices) {
  Made<rota_backends, rota_backends_destroy> lists;
  Made<rota_device, rota_device_destroy> devices;
  ABUSE(rota_list_backends, lists.place()).run();
  ABUSE(rota_backends_count, world.backends, &count).run();
  rota_backend_report report = ROTA_BACKEND_REPORT_INIT;
  ABUSE(rota_backends_get, world.backends, size_t{0}, &report).run();
  EXPECT_EQ(rota_backends_get(world.backends, 99, &report), ROTA_INVALID_ARGUMENT);
  rota_device_info info = ROTA_DEVICE_INFO_INIT;
  ABUSE(rota_backends_get_device, world.backends, size_t{0}, size_t{0}, &info).run();
  EXPECT_EQ(rota_backends_get_device(world.backends, 99, 0, &info), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_backends_get_device(world.backends, 0, 99, &info), ROTA_INVALID_ARGUMENT);

  const rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
  ABUSE(rota_device_open, &options, devices.place()).run();
  ABUSE(rota_device_get_info, world.device, &info).run();
  EXPECT_STREQ(info.id, "cpu");
  rota_device_options nowhere = ROTA_DEVICE_OPTIONS_INIT;
  nowhere.device = "abacus";
  EXPECT_EQ(rota_device_open(&nowhere, devices.place()), ROTA_NO_DEVICE);

  // What the right arguments give depends on the machine, or is refused by a CPU.
  called().insert({"rota_device_open_best", "rota_device_save_pipelines"});
  EXPECT_EQ(rota_device_open_best(nullptr), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_device_save_pipelines(nullptr), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_device_save_pipelines(reinterpret_cast<rota_device*>(world.buffer)), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_device_save_pipelines(reinterpret_cast<rota_device*>(world.strangers.zeros.data())),
            ROTA_INVALID_ARGUMENT);
}

TEST_F(CArguments, OfBuffers) {
  Made<rota_buffer, rota_buffer_destroy> buffers;
  alignas(64) static std::array<char, 256> memory{};
  ABUSE(rota_device_allocate, world.device, uint64_t{64}, buffers.place()).run();
  EXPECT_EQ(rota_device_allocate(world.device, 0, buffers.place()), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_device_allocate(world.device, ROTA_NONE, buffers.place()), ROTA_OUT_OF_MEMORY);
  ABUSE(rota_device_wrap, world.device, static_cast<void*>(memory.data()), memory.size(), null<void(void*)>(),
        null<void>(), buffers.place())
      .may_be_null({3, 4})
      .run();
  ABUSE(rota_buffer_size, world.buffer, &number).run();
  EXPECT_EQ(number, 1U << 20);
  ABUSE(rota_buffer_write, world.buffer, static_cast<const void*>(memory.data()), memory.size(), uint64_t{0}).run();
  ABUSE(rota_buffer_read, world.buffer, static_cast<void*>(memory.data()), memory.size(), uint64_t{0}).run();
  for (const uint64_t offset : {uint64_t{1U << 20}, uint64_t{ROTA_NONE}}) {
    EXPECT_EQ(rota_buffer_write(world.buffer, memory.data(), 1, offset), ROTA_INVALID_ARGUMENT);
    EXPECT_EQ(rota_buffer_read(world.buffer, memory.data(), 1, offset), ROTA_INVALID_ARGUMENT);
  }
}

TEST_F(CArguments, OfEncodersAndFences) {
  Made<rota_encoder, rota_encoder_destroy> encoders;
  Made<rota_fence, rota_fence_destroy> fences;
  ABUSE(rota_device_encoder, world.device, encoders.place()).run();
  ABUSE(rota_encoder_status, static_cast<const rota_encoder*>(world.record())).run();
  ABUSE(rota_encoder_submit, world.record(), fences.place()).may_be_null({1}).run();
  ABUSE(rota_encoder_prepare, world.record()).run();
  ABUSE(rota_fence_wait, world.fence).run();
  ABUSE(rota_fence_wait_for, world.fence, ROTA_NONE, &flag).run();
  EXPECT_EQ(flag, 1U);
  ABUSE(rota_fence_done, world.fence, &flag).run();

  // An encoder's use has ended after either.
  rota_encoder* const spent = world.record();
  must(rota_encoder_submit(spent, nullptr));
  EXPECT_EQ(rota_encoder_submit(spent, fences.place()), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_encoder_prepare(spent), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_encoder_status(spent), ROTA_INVALID_ARGUMENT);
}

TEST_F(CArguments, OfViewsAndFormats) {
  rota_view view = ROTA_VIEW_INIT;
  rota_slot_view slots = ROTA_SLOT_VIEW_INIT;
  rota_sealed_view sealed = ROTA_SEALED_VIEW_INIT;
  ABUSE(rota_view_token_major, &view, world.buffer, ROTA_F16, uint64_t{2}, uint64_t{3}, uint64_t{4}).run();
  EXPECT_EQ(view.token_stride, 12U);
  ABUSE(rota_view_head_major, &view, world.buffer, ROTA_F16, uint64_t{2}, uint64_t{3}, uint64_t{4}).run();
  EXPECT_EQ(view.token_stride, 4U);
  EXPECT_EQ(view.head_stride, 8U);
  const uint64_t two = 2, three = 3, four = 4, five = 5;
  ABUSE(rota_slot_view_token_major, &slots, world.buffer, ROTA_F16, two, three, four, five).run();
  EXPECT_EQ(slots.page_stride, 60U);
  EXPECT_EQ(slots.head_stride, 5U);
  ABUSE(rota_slot_view_head_major, &slots, world.buffer, ROTA_F16, two, three, four, five).run();
  EXPECT_EQ(slots.head_stride, 15U);

  const rota_page_format* const format = &world.format;
  ABUSE(rota_sealed_view_packed, &sealed, world.buffer, format, two, three).run();
  auto check = ABUSE(rota_page_format_check, format);
  check.run();
  check.refused_if<0>("codec", [](auto& f) { f.codec = nullptr; })
      .refused_if<0>("dense codec", [](auto& f) { f.codec = "f16"; })
      .refused_if<0>("side", [](auto& f) { f.side = static_cast<rota_kv_side>(2); })
      .refused_if<0>("scale", [](auto& f) { f.scale = static_cast<rota_scale_rule>(3); })
      .refused_if<0>("key_mean", [](auto& f) { f.key_mean = 2; });
  rota_page_format wrong = world.format;
  wrong.codec = "q4_0";
  EXPECT_EQ(rota_page_format_check(&wrong), ROTA_INVALID_ARGUMENT);
  ABUSE(rota_page_format_bytes, format, &number).run();
  EXPECT_EQ(number % 64, 0U);
  EXPECT_GT(number, 128 * kDim / 2);
  std::array<uint8_t, ROTA_PAGE_DESCRIPTION_BYTES> description{};
  ABUSE(rota_page_format_describe, format, description.data()).run();
  rota_page_format back = ROTA_PAGE_FORMAT_INIT;
  const void* const bytes = description.data();
  ABUSE(rota_page_format_read, bytes, description.size(), &back).run();
  EXPECT_STREQ(back.codec, "turbo4");
  EXPECT_EQ(back.head_dim, kDim);
  EXPECT_EQ(rota_page_format_read(bytes, 31, &back), ROTA_IO);
}

TEST_F(CArguments, OfDescriptions) {
  const rota_kv_cache_spec* const spec = &world.spec;
  rota_kv_memory memory = ROTA_KV_MEMORY_INIT;
  rota_kv_group_memory groups[2] = {ROTA_KV_GROUP_MEMORY_INIT, ROTA_KV_GROUP_MEMORY_INIT};
  auto estimate = ABUSE(rota_estimate, spec, &memory, groups + 0, size_t{1});
  estimate.may_be_null({2}).run();
  EXPECT_EQ(rota_estimate(spec, &memory, groups, 2), ROTA_INVALID_ARGUMENT);

  rota_kv_group group = world.group;
  const auto changed = [&](auto change) {
    return [&, change](rota_kv_cache_spec& s) {
      group = world.group;
      change(group);
      s.groups = &group;
    };
  };
  rota_codec_options options = ROTA_CODEC_OPTIONS_INIT;
  estimate.refused_if<0>("groups", [](auto& s) { s.groups = nullptr; })
      .refused_if<0>("at_once", [](auto& s) { s.at_once = 2; })
      .refused_if<0>("layer_order", [](auto& s) { s.layer_order = static_cast<rota_layer_order>(2); })
      .refused_if<0>("size of a group", changed([](auto& g) { g.struct_size = 8; }))
      .refused_if<0>("newer group", changed([](auto& g) { g.struct_size += 7; }))
      .refused_if<0>("layers", changed([](auto& g) { g.layers = nullptr; }))
      .refused_if<0>("k", changed([](auto& g) { g.k = nullptr; }))
      .refused_if<0>("v", changed([](auto& g) { g.v = nullptr; }))
      .refused_if<0>("dense", changed([](auto& g) { g.dense = static_cast<rota_dtype>(3); }))
      .refused_if<0>("v_in_k", changed([](auto& g) { g.v_in_k = 2; }))
      .refused_if<0>("keep_sinks", changed([](auto& g) { g.keep_sinks = 2; }))
      .refused_if<0>("page", changed([](auto& g) { g.page = (uint64_t{1} << 32) + 128; }))
      .refused_if<0>("shared", changed([](auto& g) { g.shared_count = 1; }))
      .refused_if<0>("options of f16", changed([&](auto& g) {
                       g.k = "f16";
                       g.k_options = &options;
                     }))
      .refused_if<0>("scale", changed([&](auto& g) {
                       options.scale = static_cast<rota_scale_rule>(3);
                       g.k_options = &options;
                     }))
      .refused_if<0>("size of options", changed([&](auto& g) {
                       options.struct_size = 9;
                       g.v_options = &options;
                     }));
  rota_kv_group unknown = world.group;
  unknown.k = "q4_0";
  rota_kv_cache_spec with_unknown = world.spec;
  with_unknown.groups = &unknown;
  EXPECT_EQ(rota_estimate(&with_unknown, &memory, nullptr, 0), ROTA_INVALID_ARGUMENT);
  // Elements have one size.
  rota_kv_group two[2] = {world.group, world.group};
  two[1].struct_size = sizeof(rota_kv_group) - 8;
  with_unknown.groups = two;
  with_unknown.group_count = 2;
  EXPECT_EQ(rota_estimate(&with_unknown, &memory, nullptr, 0), ROTA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rota_last_message()).find("spec.groups[1].struct_size"), std::string::npos);
}

TEST_F(CArguments, OfCaches) {
  Made<rota_kv_cache, rota_kv_cache_destroy> caches;
  Made<rota_kv_step, rota_kv_step_destroy> steps;
  const rota_kv_cache_spec* const spec = &world.spec;
  ABUSE(rota_kv_cache_create, world.device, spec, caches.place()).run();
  rota_kv_memory memory = ROTA_KV_MEMORY_INIT;
  rota_kv_group_memory group = ROTA_KV_GROUP_MEMORY_INIT;
  ABUSE(rota_kv_cache_memory, world.cache, &memory, &group, size_t{1}).may_be_null({2}).run();
  ABUSE(rota_kv_cache_reserve, world.cache, uint64_t{0}).run();
  ABUSE(rota_kv_cache_trim, world.cache).run();
  std::vector<rota_sequence> opened;
  const auto open = [&] {
    rota_sequence one{};
    must(rota_kv_cache_open_sequence(world.cache, &one));
    opened.push_back(one);
    return one;
  };
  ABUSE(rota_kv_cache_open_sequence, world.cache, &name).run();
  must(rota_kv_cache_close(world.cache, name));
  ABUSE(rota_kv_cache_close, world.cache, open()).run();
  for (const rota_sequence one : opened) static_cast<void>(rota_kv_cache_close(world.cache, one));
  EXPECT_EQ(rota_kv_cache_close(world.cache, name), ROTA_INVALID_ARGUMENT);

  rota_kv_extension extension = ROTA_KV_EXTENSION_INIT;
  extension.sequence = world.sequence;
  extension.tokens = 1;
  const rota_kv_extension* const one = &extension;
  ABUSE(rota_kv_cache_extend, world.cache, world.record(), one, size_t{1}, steps.place()).run();
  ABUSE(rota_kv_cache_fork, world.cache, world.record(), world.sequence, &name).run();
  ABUSE(rota_kv_cache_truncate, world.cache, world.record(), world.sequence, uint64_t{299}).run();
  ABUSE(rota_kv_cache_settle, world.cache, world.record()).run();
  world.record();
  ABUSE(rota_kv_cache_wait, world.cache, world.sequence, ROTA_NONE).run();
  ABUSE(rota_kv_cache_first_position, world.cache, world.sequence, &number).run();
  ABUSE(rota_kv_cache_length, world.cache, world.sequence, &number).run();
  EXPECT_EQ(number, 300U) << "a refused call has changed the sequence";
  rota_kv_counters counters = ROTA_KV_COUNTERS_INIT;
  ABUSE(rota_kv_cache_counters, world.cache, &counters).run();
  EXPECT_EQ(counters.tokens, 300U);
  ABUSE(rota_kv_cache_non_finite, world.cache, &number, &number2).run();

  // A sequence of nobody's, and a refusal that leaves the encoder usable.
  const rota_sequence nobody{1234, 5, 6};
  rota_encoder* const encoder = world.record();
  EXPECT_EQ(rota_kv_cache_length(world.cache, nobody, &number), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_cache_truncate(world.cache, encoder, world.sequence, 301), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_cache_fork(world.cache, encoder, nobody, &name), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_cache_extend(world.cache, encoder, one, 0, steps.place()), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_cache_extend(world.cache, encoder, nullptr, 1, steps.place()), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_encoder_status(encoder), ROTA_OK);
}

TEST_F(CArguments, OfSteps) {
  const int64_t* positions = nullptr;
  const rota_view* const view = &world.view;
  ABUSE(rota_kv_step_positions, static_cast<const rota_kv_step*>(world.step(1)), &positions, &count).run();
  EXPECT_EQ(count, 1U);
  auto append = ABUSE(rota_kv_step_append, world.step(1, 0), world.encoder, uint32_t{0}, view, view);
  append.may_be_null({4}).run();
  append.refused_if<3>("buffer", [](auto& v) { v.buffer = nullptr; }).refused_if<3>("dtype", [](auto& v) {
    v.dtype = static_cast<rota_dtype>(3);
  });
  ABUSE(rota_kv_step_done, world.step(1), world.encoder, uint32_t{1}).run();
  // Keys alone are refused by the C++ below, where values are not a part of them.
  EXPECT_EQ(rota_kv_step_append(world.step(1, 0), world.encoder, 0, view, nullptr), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_step_append(world.step(1, 0), world.encoder, 99, view, view), ROTA_INVALID_ARGUMENT);
}

TEST_F(CArguments, OfSavedSequences) {
  Made<rota_kv_notes, rota_kv_notes_destroy> notes;
  Made<rota_kv_saved, rota_kv_saved_destroy> headers;
  std::vector<unsigned char> bytes;
  const rota_kv_save_options save = ROTA_KV_SAVE_OPTIONS_INIT;
  const rota_kv_load_options load = ROTA_KV_LOAD_OPTIONS_INIT;
  world.record();
  auto saves = ABUSE(rota_kv_cache_save, world.cache, world.sequence, &append_bytes, static_cast<void*>(&bytes), &save);
  saves.may_be_null({3, 4}).run();
  saves.refused_if<4>("notes", [](auto& s) { s.note_count = 1; });
  auto loads = ABUSE(rota_kv_cache_load, world.cache, &read_bytes, static_cast<void*>(world.rewound()), &load, &name,
                     &number, notes.place());
  loads.may_be_null({2, 3, 5, 6}).run();
  const void* const all = world.bytes.data();
  ABUSE(rota_kv_cache_load_bytes, world.cache, all, world.bytes.size(), &load, &name, &number, notes.place())
      .may_be_null({3, 5, 6})
      .run();
  EXPECT_EQ(number, 300U);
  rota_kv_note note = ROTA_KV_NOTE_INIT;
  ABUSE(rota_kv_notes_count, world.notes, &count).run();
  ABUSE(rota_kv_notes_get, world.notes, size_t{0}, &note).run();
  EXPECT_EQ(rota_kv_notes_get(world.notes, 1, &note), ROTA_INVALID_ARGUMENT);

  ABUSE(rota_read_saved_header, &read_bytes, static_cast<void*>(world.rewound()), headers.place())
      .may_be_null({1})
      .run();
  ABUSE(rota_verify_saved, &read_bytes, static_cast<void*>(world.rewound()), headers.place()).may_be_null({1}).run();
  rota_kv_saved_info info = ROTA_KV_SAVED_INFO_INIT;
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  rota_kv_saved_side k = ROTA_KV_SAVED_SIDE_INIT, v = ROTA_KV_SAVED_SIDE_INIT;
  ABUSE(rota_kv_saved_get_info, world.saved, &info).run();
  ABUSE(rota_kv_saved_get_group, world.saved, size_t{0}, &group, &k, &v).may_be_null({2, 3, 4}).run();
  ABUSE(rota_kv_saved_get_note, world.saved, size_t{0}, &number, &number2).may_be_null({2, 3}).run();
  EXPECT_EQ(rota_kv_saved_get_group(world.saved, 1, &group, &k, &v), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_kv_saved_get_note(world.saved, 1, &number, &number2), ROTA_INVALID_ARGUMENT);
}

TEST_F(CArguments, OfStoreAndRope) {
  rota_store_pair pair = ROTA_STORE_PAIR_INIT;
  pair.from = &world.view;
  rota_slot_view contiguous = ROTA_SLOT_VIEW_INIT;
  must(rota_slot_view_token_major(&contiguous, world.other, ROTA_F16, 1, kPage, 1, kDim));
  pair.to = &contiguous;
  rota_token_run run = ROTA_TOKEN_RUN_INIT;
  run.tokens = 1;
  run.capacity = 128;
  rota_store_call store = ROTA_STORE_CALL_INIT;
  store.pairs = &pair;
  store.pair_count = 1;
  store.sequences = &run;
  store.sequence_count = 1;
  const rota_store_call* const stored = &store;
  auto stores = ABUSE(rota_store, world.record(), stored);
  stores.run();
  rota_store_pair other = pair;
  rota_token_run ring = run;
  stores.refused_if<1>("pairs", [](auto& c) { c.pairs = nullptr; })
      .refused_if<1>("sequences", [](auto& c) { c.sequences = nullptr; })
      .refused_if<1>("non_finite", [&](auto& c) { c.non_finite = reinterpret_cast<rota_buffer*>(world.device); })
      .refused_if<1>("from", [&](auto& c) { other.from = nullptr, c.pairs = &other; })
      .refused_if<1>("to", [&](auto& c) { other = pair, other.to = nullptr, c.pairs = &other; })
      .refused_if<1>("when_full",
                     [&](auto& c) { ring.when_full = static_cast<rota_when_full>(2), c.sequences = &ring; })
      .refused_if<1>("page_table", [&](auto& c) { ring = run, ring.page_count = 1, c.sequences = &ring; });

  rota_rope_tensor tensor = ROTA_ROPE_TENSOR_INIT;
  tensor.from = tensor.to = &world.view;
  const int64_t position = 3;
  rota_rotary rotary = ROTA_ROTARY_INIT;
  rotary.theta = 1e4;
  rota_rope_call rope = ROTA_ROPE_CALL_INIT;
  rope.tensors = &tensor;
  rope.tensor_count = 1;
  rope.positions = &position;
  rope.position_count = 1;
  rope.rotary = &rotary;
  const rota_rope_call* const roped = &rope;
  auto ropes = ABUSE(rota_rope, world.record(), roped);
  ropes.run();
  rota_rotary turned = rotary;
  rota_yarn yarn = ROTA_YARN_INIT;
  rota_rope_sections sections = ROTA_ROPE_SECTIONS_INIT;
  rota_head_norm norm = ROTA_HEAD_NORM_INIT;
  rota_rope_tensor normed = tensor;
  const auto with = [&](auto change) {
    return [&, change](rota_rope_call& c) {
      turned = rotary;
      change(turned);
      c.rotary = &turned;
    };
  };
  ropes.refused_if<1>("tensors", [](auto& c) { c.tensors = nullptr; })
      .refused_if<1>("positions", [](auto& c) { c.positions = nullptr; })
      .refused_if<1>("rotary", [](auto& c) { c.rotary = nullptr; })
      .refused_if<1>("size of rotary", with([](auto& r) { r.struct_size = 8; }))
      .refused_if<1>("pairing", with([](auto& r) { r.pairing = static_cast<rota_pairing>(3); }))
      .refused_if<1>("factors", with([](auto& r) { r.factor_count = 1; }))
      .refused_if<1>("ramp", with([&](auto& r) { yarn.ramp = static_cast<rota_yarn_ramp>(2), r.yarn = &yarn; }))
      .refused_if<1>("size of yarn", with([&](auto& r) { yarn.struct_size = 8, r.yarn = &yarn; }))
      .refused_if<1>("axes", with([&](auto& r) { sections.axis_count = 1, r.sections = &sections; }))
      .refused_if<1>("order", with([&](auto& r) {
                       sections = ROTA_ROPE_SECTIONS_INIT;
                       sections.order = static_cast<rota_section_order>(2);
                       r.sections = &sections;
                     }))
      .refused_if<1>("frequencies", with([&](auto& r) {
                       sections = ROTA_ROPE_SECTIONS_INIT;
                       sections.frequencies = static_cast<rota_section_frequencies>(2);
                       r.sections = &sections;
                     }))
      .refused_if<1>("norm", [&](auto& c) { norm.struct_size = 8, normed.norm = &norm, c.tensors = &normed; });
}

TEST_F(CArguments, OfSealAndUnseal) {
  rota_seal_page page = ROTA_SEAL_PAGE_INIT;
  rota_seal_call seal = ROTA_SEAL_CALL_INIT;
  seal.from = &world.slots;
  seal.to = &world.sealed;
  seal.pages = &page;
  seal.page_count = 1;
  seal.non_finite = world.buffer;
  seal.non_finite_offset_bytes = 1U << 19;
  const rota_seal_call* const sealing = &seal;
  auto seals = ABUSE(rota_seal, world.record(), sealing);
  seals.run();
  rota_sealed_view bad = world.sealed;
  seals.refused_if<1>("from", [](auto& c) { c.from = nullptr; })
      .refused_if<1>("to", [](auto& c) { c.to = nullptr; })
      .refused_if<1>("pages", [](auto& c) { c.pages = nullptr; })
      .refused_if<1>("non_finite", [](auto& c) { c.non_finite = nullptr; })
      .refused_if<1>("format", [&](auto& c) { bad.format = nullptr, c.to = &bad; })
      .refused_if<1>("buffer", [&](auto& c) { bad = world.sealed, bad.buffer = nullptr, c.to = &bad; });

  rota_unseal_page back = ROTA_UNSEAL_PAGE_INIT;
  rota_unseal_call unseal = ROTA_UNSEAL_CALL_INIT;
  unseal.from = &world.sealed;
  unseal.to = &world.slots;
  unseal.pages = &back;
  unseal.page_count = 1;
  const rota_unseal_call* const unsealing = &unseal;
  auto unseals = ABUSE(rota_unseal, world.record(), unsealing);
  unseals.run();
  unseals.refused_if<1>("from", [](auto& c) { c.from = nullptr; })
      .refused_if<1>("to", [](auto& c) { c.to = nullptr; })
      .refused_if<1>("pages", [](auto& c) { c.pages = nullptr; });
}

TEST_F(CArguments, OfAttend) {
  rota_attend_call attend = ROTA_ATTEND_CALL_INIT;
  attend.q = &world.view;
  attend.out = &world.out;
  attend.scale = 0.125;
  const rota_attend_call* const call = &attend;
  const auto step = [&] { return static_cast<const rota_kv_step*>(world.step(1)); };
  // The step first: it brings the encoder.
  const auto by_step = [&] {
    const rota_kv_step* const made = step();
    return std::tuple{world.encoder, made, uint32_t{1}, call};
  };
  auto attends = abuse(world, "rota_attend", rota_attend, {by_step});
  attends.run();
  rota_view bad = world.view;
  const auto change_view = [&](auto change) {
    return [&, change](rota_attend_call& c) {
      bad = world.view;
      change(bad);
      c.q = &bad;
    };
  };
  attends.refused_if<3>("q", [](auto& c) { c.q = nullptr; })
      .refused_if<3>("out", [](auto& c) { c.out = nullptr; })
      .refused_if<3>("mask", [](auto& c) { c.mask = static_cast<rota_mask>(2); })
      .refused_if<3>("arithmetic", [](auto& c) { c.arithmetic = static_cast<rota_arithmetic>(2); })
      .refused_if<3>("query_tokens", [](auto& c) { c.query_token_count = 1; })
      .refused_if<3>("buffer", change_view([](auto& v) { v.buffer = nullptr; }))
      .refused_if<3>("device for a buffer",
                     change_view([&](auto& v) { v.buffer = reinterpret_cast<rota_buffer*>(world.device); }))
      .refused_if<3>("dtype", change_view([](auto& v) { v.dtype = static_cast<rota_dtype>(3); }))
      .refused_if<3>("size", change_view([](auto& v) { v.struct_size = 17; }))
      .refused_if<3>("sink_logits", [&](auto& c) { bad.struct_size = 0, c.sink_logits = &bad; })
      .refused_if<3>("alibi_slopes", [&](auto& c) { c.alibi_slopes = &bad; })
      .refused_if<3>("log_sum_exp", [&](auto& c) { c.log_sum_exp = &bad; });
  EXPECT_EQ(rota_attend(world.record(), world.last_step, 0, call), ROTA_INVALID_ARGUMENT);

  const rota_sequence* const sequence = &world.sequence;
  ABUSE(rota_attend_sequences, world.record(), world.cache, sequence, size_t{1}, uint32_t{0}, call).run();
  rota_token_run run = ROTA_TOKEN_RUN_INIT;
  run.tokens = 2;
  run.capacity = 128;
  const rota_token_run* const runs = &run;
  const uint32_t page = 0;
  run.page_table = &page;
  run.page_count = 1;
  const rota_slot_view* const slots = &world.slots;
  rota_view after = world.view;
  after.offset = kDim;
  attend.out = &after;
  ABUSE(rota_attend_slots, world.record(), slots, slots, runs, size_t{1}, call).run();
}

TEST_F(CArguments, OfMergeAndChecksum) {
  rota_merge_call merge = ROTA_MERGE_CALL_INIT;
  merge.first_out = merge.second_out = &world.view;
  merge.first_log_sum_exp = merge.second_log_sum_exp = &world.row;
  merge.out = &world.out;
  const rota_merge_call* const merging = &merge;
  auto merges = ABUSE(rota_merge, world.record(), merging);
  merges.run();
  merges.refused_if<1>("first_out", [](auto& c) { c.first_out = nullptr; })
      .refused_if<1>("second_out", [](auto& c) { c.second_out = nullptr; })
      .refused_if<1>("first_log_sum_exp", [](auto& c) { c.first_log_sum_exp = nullptr; })
      .refused_if<1>("second_log_sum_exp", [](auto& c) { c.second_log_sum_exp = nullptr; })
      .refused_if<1>("out", [](auto& c) { c.out = nullptr; });

  rota_word_range range = ROTA_WORD_RANGE_INIT;
  range.buffer = world.buffer;
  range.size_bytes = 64;
  rota_checksum_call checksum = ROTA_CHECKSUM_CALL_INIT;
  checksum.of = &range;
  checksum.count = 1;
  checksum.sums = world.other;
  const rota_checksum_call* const summing = &checksum;
  auto sums = ABUSE(rota_checksum, world.record(), summing);
  sums.run();
  rota_word_range bad = range;
  sums.refused_if<1>("of", [](auto& c) { c.of = nullptr; })
      .refused_if<1>("sums", [](auto& c) { c.sums = nullptr; })
      .refused_if<1>("buffer", [&](auto& c) { bad.buffer = nullptr, c.of = &bad; });
}

TEST_F(CArguments, OfWhatReturnsNoStatus) {
  called().insert({"rota_set_last_message", "rota_status_name", "rota_last_message", "rota_version_text",
                   "rota_codec_count", "rota_codec_name"});
  EXPECT_STREQ(rota_status_name(ROTA_OK), "ok");
  EXPECT_STREQ(rota_status_name(ROTA_OUT_OF_PAGES), "out of pages");
  EXPECT_STREQ(rota_status_name(static_cast<rota_status>(99)), "unknown");
  EXPECT_STREQ(rota_version_text(), ROTA_VERSION);
  ASSERT_EQ(rota_codec_count(), 9U);
  EXPECT_STREQ(rota_codec_name(1), "f16");
  EXPECT_EQ(rota_codec_name(rota_codec_count()), nullptr);
  uint32_t major = 99, minor = 99, patch = 99;
  ABUSE(rota_version, &major, &minor, &patch).may_be_null({0, 1, 2}).run();
  EXPECT_EQ(major, uint32_t{ROTA_VERSION_MAJOR});
  EXPECT_EQ(minor, uint32_t{ROTA_VERSION_MINOR});
  EXPECT_EQ(patch, uint32_t{ROTA_VERSION_PATCH});
  must(rota_version(nullptr, nullptr, nullptr));
  rota_view view;
  ABUSE(rota_struct_init, "rota_view", static_cast<void*>(&view), sizeof(view)).run();
  EXPECT_EQ(view.dim_stride, 1U);
  EXPECT_EQ(rota_struct_init("rota_vew", &view, sizeof(view)), ROTA_INVALID_ARGUMENT);
  EXPECT_EQ(rota_struct_init("rota_view", &view, sizeof(view) - 1), ROTA_INVALID_ARGUMENT);
}

TEST_F(CArguments, OfDestroying) {
  end_strangers(world, "rota_backends_destroy", rota_backends_destroy);
  end_strangers(world, "rota_device_destroy", rota_device_destroy);
  end_strangers(world, "rota_buffer_destroy", rota_buffer_destroy);
  end_strangers(world, "rota_encoder_destroy", rota_encoder_destroy);
  end_strangers(world, "rota_fence_destroy", rota_fence_destroy);
  end_strangers(world, "rota_kv_cache_destroy", rota_kv_cache_destroy);
  end_strangers(world, "rota_kv_step_destroy", rota_kv_step_destroy);
  end_strangers(world, "rota_kv_notes_destroy", rota_kv_notes_destroy);
  end_strangers(world, "rota_kv_saved_destroy", rota_kv_saved_destroy);
  must(rota_buffer_size(world.buffer, &number));
  EXPECT_EQ(number, 1U << 20) << "a handle ended by another's destroy";
}

// The last of the suite: nothing that the header declares was left out above.
TEST_F(CArguments, OfEveryFunctionOfTheHeader) {
  const std::set<std::string> declared = functions_of("rota/c.h");
  EXPECT_GT(declared.size(), 70U);
  EXPECT_EQ(called(), declared);
}

}  // namespace
}  // namespace c_test
