#pragma once

#include <gtest/gtest.h>
#include <rota/c.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
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

template <class... Args>
Abuse<Args...> abuse(World& world, const char* name, rota_status (*function)(Args...),
                     std::function<std::tuple<Args...>()> good) {
  return Abuse<Args...>(name, function, std::move(good), world.strangers);
}

// ABUSE(function, arguments...): arguments are made anew for each call.
#define ABUSE(function, ...) abuse(world, #function, function, {[&] { return std::tuple{__VA_ARGS__}; }})

// A place for a handle that a call makes, which ends with the test.
template <class T, void (*Destroy)(T*)>
class Made {
 public:
  ~Made() {
    for (auto& one : all_) Destroy(*one);
  }
  T** place() { return all_.emplace_back(std::make_unique<T*>(nullptr)).get(); }

 private:
  std::vector<std::unique_ptr<T*>> all_;
};

template <class T>
T* null() {
  return nullptr;
}

// Destroys what is no such handle: refused, with a message.
template <class T>
void end_strangers(World& world, const char* name, void (*destroy)(T*)) {
  called().insert(name);
  destroy(nullptr);
  std::vector<void*> wrong{world.strangers.zeros.data(), world.strangers.ones.data()};
  for (auto& [kind, handle] : world.strangers.handles) {
    if (kind != typeid(T*).name()) wrong.push_back(handle);
  }
  for (void* const handle : wrong) {
    rota_buffer_size(nullptr, nullptr);
    destroy(static_cast<T*>(handle));
    EXPECT_EQ(std::string(rota_last_message()).rfind(std::string(name) + ": ", 0), 0) << rota_last_message();
  }
}

// What a header declares.
inline std::string text_of(const std::string& header) {
  std::ifstream file(ROTA_SOURCE_FOLDER "/include/" + header);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline std::set<std::string> names_in(const std::string& text, const char* pattern) {  // with the name in parentheses
  const std::regex name(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator found(text.begin(), text.end(), name), end; found != end; ++found) {
    names.insert((*found)[1]);
  }
  return names;
}
inline std::set<std::string> functions_of(const std::string& header) {
  const std::string text = text_of(header);
  const std::set<std::string> names = names_in(text, R"(\nROTA_C_API [^;(]*?\b(rota_\w+)\()");
  size_t exports = 0;
  for (size_t at = 0; (at = text.find("\nROTA_C_API ", at)) != std::string::npos; ++at) ++exports;
  EXPECT_EQ(names.size(), exports) << header;
  return names;
}
inline std::set<std::string> init_macros_of(const std::string& header) {
  return names_in(text_of(header), R"(#define (ROTA_\w+_INIT)\b)");
}

template <class T>
std::vector<unsigned char> bytes_of(const T& value) {
  const auto* const first = reinterpret_cast<const unsigned char*>(&value);
  return {first, first + sizeof(T)};
}

// A struct by its macro and by the function `by_name`; its macro is `seen`.
#define EXPECT_INIT(type, init)                                   \
  {                                                               \
    const type wanted = init;                                     \
    type found;                                                   \
    std::memset(static_cast<void*>(&found), 0xaa, sizeof(found)); \
    must(by_name(#type, &found, sizeof(found)));                  \
    EXPECT_EQ(bytes_of(found), bytes_of(wanted)) << #type;        \
    seen.insert(#init);                                           \
  }

}  // namespace c_test
