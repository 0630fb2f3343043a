#pragma once

#include <gtest/gtest.h>
#include <rota/c.h>

#include <cstring>
#include <memory>
#include <vector>

#include "c/abuse.h"

// A device with one of everything, for calls that want it. What a call makes is ended with the world.

namespace c_test {

inline void must(rota_status status) { ASSERT_EQ(status, ROTA_OK) << rota_last_message(); }

inline constexpr uint32_t kLayers[] = {0, 1};
inline constexpr uint64_t kDim = 64, kPage = 128;

inline int append_bytes(void* user, const void* bytes, size_t size) {
  auto& all = *static_cast<std::vector<unsigned char>*>(user);
  const auto* const first = static_cast<const unsigned char*>(bytes);
  all.insert(all.end(), first, first + size);
  return 0;
}

// Bytes that end.
struct Reader {
  const std::vector<unsigned char>* bytes;
  size_t at = 0;
};
inline int read_bytes(void* user, void* bytes, size_t size) {
  auto& reader = *static_cast<Reader*>(user);
  if (size > reader.bytes->size() - reader.at) return 5;
  std::memcpy(bytes, reader.bytes->data() + reader.at, size);
  reader.at += size;
  return 0;
}

class World {
 public:
  World() {
    rota_device_options options = ROTA_DEVICE_OPTIONS_INIT;
    options.threads = 2;
    must(rota_device_open(&options, &device));
    must(rota_device_allocate(device, 1U << 20, &buffer));
    must(rota_device_allocate(device, 1U << 20, &other));
    const std::vector<char> zeros(1U << 20);
    must(rota_buffer_write(buffer, zeros.data(), zeros.size(), 0));
    must(rota_buffer_write(other, zeros.data(), zeros.size(), 0));
    must(rota_list_backends(&backends));
    must(rota_device_encoder(device, &spare));

    group.layers = kLayers;
    group.layer_count = 2;
    group.kv_heads = 1;
    group.head_dim = kDim;
    group.k = group.v = "turbo4";
    spec.groups = &group;
    spec.group_count = 1;
    spec.max_tokens = 4096;
    spec.max_sequences = 64;
    must(rota_kv_cache_create(device, &spec, &cache));
    must(rota_kv_cache_open_sequence(cache, &sequence));
    must(rota_view_token_major(&view, buffer, ROTA_F32, 1, 1, kDim));
    must(rota_view_token_major(&out, other, ROTA_F32, 1, 1, kDim));
    must(rota_view_token_major(&row, buffer, ROTA_F32, 1, 1, 1));
    must(rota_slot_view_token_major(&slots, other, ROTA_F16, 2, kPage, 1, kDim));
    format.head_dim = kDim;
    must(rota_sealed_view_packed(&sealed, buffer, &format, 2, 1));

    step(300);
    must(rota_encoder_submit(encoder, &fence));
    must(rota_fence_wait(fence));
    rota_kv_note note = ROTA_KV_NOTE_INIT;
    note.bytes = "ids";
    note.size = 3;
    rota_kv_save_options save = ROTA_KV_SAVE_OPTIONS_INIT;
    save.notes = &note;
    save.note_count = 1;
    must(rota_kv_cache_save(cache, sequence, append_bytes, &bytes, &save));
    rota_sequence loaded;
    must(rota_kv_cache_load_bytes(cache, bytes.data(), bytes.size(), nullptr, &loaded, nullptr, &notes));
    must(rota_kv_cache_close(cache, loaded));
    reader = {&bytes};
    must(rota_verify_saved(read_bytes, &reader, &saved));
    know();
  }

  ~World() {
    rota_encoder_destroy(encoder);
    rota_encoder_destroy(spare);
    rota_kv_step_destroy(last_step);
    rota_kv_saved_destroy(saved);
    rota_kv_notes_destroy(notes);
    rota_kv_cache_destroy(cache);
    rota_fence_destroy(fence);
    rota_buffer_destroy(buffer);
    rota_buffer_destroy(other);
    rota_backends_destroy(backends);
    rota_device_destroy(device);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // A new encoder; the last one is dropped.
  rota_encoder* record() {
    rota_encoder_destroy(encoder);
    rota_kv_step_destroy(last_step);
    last_step = nullptr;
    encoder = nullptr;
    must(rota_device_encoder(device, &encoder));
    return encoder;
  }

  // A new encoder, with a step of so many tokens whose layers are appended as far as asked.
  rota_kv_step* step(uint64_t tokens, uint32_t layers = 2) {
    record();
    rota_kv_extension extension = ROTA_KV_EXTENSION_INIT;
    extension.sequence = sequence;
    extension.tokens = tokens;
    must(rota_kv_cache_extend(cache, encoder, &extension, 1, &last_step));
    rota_view keys = ROTA_VIEW_INIT;
    must(rota_view_token_major(&keys, buffer, ROTA_F32, tokens, 1, kDim));
    for (uint32_t layer = 0; layer < layers; ++layer)
      must(rota_kv_step_append(last_step, encoder, layer, &keys, &keys));
    return last_step;
  }

  // The saved bytes again, from their beginning.
  Reader* rewound() {
    reader = {&bytes};
    return &reader;
  }

  rota_device* device = nullptr;
  rota_backends* backends = nullptr;
  rota_buffer *buffer = nullptr, *other = nullptr;
  rota_encoder *encoder = nullptr, *spare = nullptr;
  rota_fence* fence = nullptr;
  rota_kv_cache* cache = nullptr;
  rota_kv_step* last_step = nullptr;
  rota_kv_notes* notes = nullptr;
  rota_kv_saved* saved = nullptr;
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  rota_kv_cache_spec spec = ROTA_KV_CACHE_SPEC_INIT;
  rota_sequence sequence{};
  rota_view view = ROTA_VIEW_INIT, out = ROTA_VIEW_INIT, row = ROTA_VIEW_INIT;
  rota_slot_view slots = ROTA_SLOT_VIEW_INIT;
  rota_page_format format = ROTA_PAGE_FORMAT_INIT;
  rota_sealed_view sealed = ROTA_SEALED_VIEW_INIT;
  std::vector<unsigned char> bytes;
  Reader reader{};
  Strangers strangers;

 private:
  template <class T>
  void know(T* handle) {
    strangers.handles.push_back({typeid(T*).name(), handle});
  }
  void know() {
    know(device);
    know(backends);
    know(buffer);
    know(fence);
    know(spare);
    know(cache);
    know(notes);
    know(saved);
  }
};

}  // namespace c_test
