#include "c/convert.h"
#include "c/handles.h"
#include "c/structs.h"

// Sequences as bytes.

using namespace rota::c;
using rota::Status;

namespace {

static_assert(!rota::KvSaveOptions{}.end && !rota::KvLoadOptions{}.tokens && !rota::KvLoadOptions{}.onto);

rota::ByteSource source_of(const char* call, rota_byte_source source, void* user) {
  return [=](std::span<std::byte> bytes) -> Status {
    const int refused = source(user, bytes.data(), bytes.size());
    if (refused == 0) return {};
    return refuse(Where{nullptr, call}.in("source's result"), std::to_string(refused), "0", rota::Errc::io);
  };
}

rota::ByteSink sink_of(const char* call, rota_byte_sink sink, void* user) {
  return [=](std::span<const std::byte> bytes) -> Status {
    const int refused = sink(user, bytes.data(), bytes.size());
    if (refused == 0) return {};
    return refuse(Where{nullptr, call}.in("sink's result"), std::to_string(refused), "0", rota::Errc::io);
  };
}

rota::Result<rota::KvLoadOptions> load_options_of(const Where& where, const rota_kv_load_options* from) {
  rota_kv_load_options taken = ROTA_KV_LOAD_OPTIONS_INIT;
  if (from != nullptr) {
    if (Status status = take(where, from, taken); !status) return status.error();
  }
  rota::KvLoadOptions options{.tokens = if_not_none(taken.tokens)};
  if (taken.onto != nullptr) options.onto = sequence_of(*taken.onto);
  return options;
}

Status notes_of(const Where& where, const rota_kv_note* from, std::size_t count, std::vector<rota::KvNote>& to) {
  return each(where, from, count, [&](const Where& here, const rota_kv_note& note) -> Status {
    const auto bytes = list_of(here.in("bytes"), static_cast<const std::byte*>(note.bytes), note.size);
    if (!bytes) return bytes.error();
    to.push_back({.position = note.position, .bytes = {bytes->begin(), bytes->end()}});
    return {};
  });
}

// What both ways to load have in common: `load` gives a Result<KvLoaded>.
template <class Load>
Status load_by(const Where& call, rota_kv_cache* cache, const rota_kv_load_options* options, rota_sequence* sequence,
               uint64_t* length, rota_kv_notes** notes, Load&& load) {
  if (Status status = check_handle(call.in("cache"), cache); !status) return status;
  if (Status status = check_given(call.in("sequence"), sequence); !status) return status;
  const auto chosen = load_options_of(call.in("options"), options);
  if (!chosen) return chosen.error();
  auto handle = notes != nullptr ? make<rota_kv_notes>() : nullptr;  // first: a sequence that nobody gets would stay
  auto loaded = load(chosen.value());
  if (!loaded) return loaded.error();
  *sequence = c_sequence(loaded->sequence);
  if (length != nullptr) *length = loaded->length;
  if (handle) {
    handle->notes = std::move(loaded->notes);
    *notes = handle.release();
  }
  return {};
}

template <class Read>
rota_status read_by(const char* name, rota_byte_source source, void* user, rota_kv_saved** result, Read&& read) {
  return answer([&]() -> Status {
    const Where call{nullptr, name};
    if (Status status = check_given(call.in("source"), source); !status) return status;
    if (Status status = check_given(call.in("result"), result); !status) return status;
    auto saved = read(source_of(name, source, user));
    if (!saved) return saved.error();
    auto handle = make<rota_kv_saved>(std::move(saved).value());
    handle->groups.resize(handle->saved.groups.size());
    for (std::size_t i = 0; i < handle->groups.size(); ++i) c_group(handle->saved.groups[i].group, handle->groups[i]);
    *result = handle.release();
    return {};
  });
}

rota_kv_saved_side c_side(const rota::KvSavedSide& from) noexcept {
  return {sizeof(rota_kv_saved_side),
          from.first_page,
          from.sealed_pages,
          from.end_page,
          from.bytes,
          from.has_sinks ? 1U : 0U,
          0};
}

template <class T>
Status check_optional_result(const Where& where, const T* result) {
  return result == nullptr ? Status{} : check_result(where, result);
}

}  // namespace

rota_status rota_kv_cache_save(rota_kv_cache* cache, rota_sequence sequence, rota_byte_sink sink, void* user,
                               const rota_kv_save_options* options) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_save"};
    if (Status status = check_handle(call.in("cache"), cache); !status) return status;
    if (Status status = check_given(call.in("sink"), sink); !status) return status;
    rota_kv_save_options taken = ROTA_KV_SAVE_OPTIONS_INIT;
    const Where of_options = call.in("options");
    if (options != nullptr) {
      if (Status status = take(of_options, options, taken); !status) return status;
    }
    std::vector<rota::KvNote> notes;
    if (Status status = notes_of(of_options.in("notes"), taken.notes, taken.note_count, notes); !status) return status;
    return cache->cache.save(sequence_of(sequence), sink_of(call.name, sink, user),
                             {.begin = taken.begin, .end = if_not_none(taken.end), .notes = notes});
  });
}

rota_status rota_kv_cache_load(rota_kv_cache* cache, rota_byte_source source, void* user,
                               const rota_kv_load_options* options, rota_sequence* sequence, uint64_t* length,
                               rota_kv_notes** notes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_load"};
    if (Status status = check_given(call.in("source"), source); !status) return status;
    return load_by(call, cache, options, sequence, length, notes, [&](const rota::KvLoadOptions& chosen) {
      return cache->cache.load(source_of(call.name, source, user), chosen);
    });
  });
}

rota_status rota_kv_cache_load_bytes(rota_kv_cache* cache, const void* bytes, size_t size,
                                     const rota_kv_load_options* options, rota_sequence* sequence, uint64_t* length,
                                     rota_kv_notes** notes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_cache_load_bytes"};
    const auto span = list_of(call.in("bytes"), static_cast<const std::byte*>(bytes), size);
    if (!span) return span.error();
    return load_by(call, cache, options, sequence, length, notes,
                   [&](const rota::KvLoadOptions& chosen) { return cache->cache.load(span.value(), chosen); });
  });
}

rota_status rota_kv_notes_count(const rota_kv_notes* notes, size_t* count) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_notes_count"};
    if (Status status = check_handle(call.in("notes"), notes); !status) return status;
    if (Status status = check_given(call.in("count"), count); !status) return status;
    *count = notes->notes.size();
    return {};
  });
}

rota_status rota_kv_notes_get(const rota_kv_notes* notes, size_t index, rota_kv_note* note) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_notes_get"};
    if (Status status = check_handle(call.in("notes"), notes); !status) return status;
    if (Status status = check_index(call.in("index"), index, notes->notes.size()); !status) return status;
    if (Status status = check_result(call.in("note"), note); !status) return status;
    const rota::KvNote& from = notes->notes[index];
    put({sizeof(rota_kv_note), from.position, from.bytes.data(), from.bytes.size()}, note);
    return {};
  });
}

void rota_kv_notes_destroy(rota_kv_notes* notes) { destroy("rota_kv_notes_destroy", "notes", notes); }

rota_status rota_read_saved_header(rota_byte_source source, void* user, rota_kv_saved** result) {
  return read_by("rota_read_saved_header", source, user, result,
                 [](const rota::ByteSource& from) { return rota::read_saved_header(from); });
}

rota_status rota_verify_saved(rota_byte_source source, void* user, rota_kv_saved** result) {
  return read_by("rota_verify_saved", source, user, result,
                 [](const rota::ByteSource& from) { return rota::verify_saved(from); });
}

rota_status rota_kv_saved_get_info(const rota_kv_saved* saved, rota_kv_saved_info* info) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_saved_get_info"};
    if (Status status = check_handle(call.in("saved"), saved); !status) return status;
    if (Status status = check_result(call.in("info"), info); !status) return status;
    const rota::KvSaved& from = saved->saved;
    put({sizeof(rota_kv_saved_info), from.begin, from.end, from.header_bytes, from.bytes, from.groups.size(),
         from.notes.size(), from.version, 0},
        info);
    return {};
  });
}

rota_status rota_kv_saved_get_group(const rota_kv_saved* saved, size_t index, rota_kv_group* group,
                                    rota_kv_saved_side* k, rota_kv_saved_side* v) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_saved_get_group"};
    if (Status status = check_handle(call.in("saved"), saved); !status) return status;
    if (Status status = check_index(call.in("index"), index, saved->groups.size()); !status) return status;
    if (Status status = check_optional_result(call.in("group"), group); !status) return status;
    if (Status status = check_optional_result(call.in("k"), k); !status) return status;
    if (Status status = check_optional_result(call.in("v"), v); !status) return status;
    if (group != nullptr) put(saved->groups[index].group, group);
    if (k != nullptr) put(c_side(saved->saved.groups[index].k), k);
    if (v != nullptr) put(c_side(saved->saved.groups[index].v), v);
    return {};
  });
}

rota_status rota_kv_saved_get_note(const rota_kv_saved* saved, size_t index, uint64_t* position, uint64_t* bytes) {
  return answer([&]() -> Status {
    const Where call{nullptr, "rota_kv_saved_get_note"};
    if (Status status = check_handle(call.in("saved"), saved); !status) return status;
    if (Status status = check_index(call.in("index"), index, saved->saved.notes.size()); !status) return status;
    if (position != nullptr) *position = saved->saved.notes[index].position;
    if (bytes != nullptr) *bytes = saved->saved.notes[index].bytes;
    return {};
  });
}

void rota_kv_saved_destroy(rota_kv_saved* saved) { destroy("rota_kv_saved_destroy", "saved", saved); }
