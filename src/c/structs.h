#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "c/status.h"
#include "rota/c.h"

// Structs of callers that may be older or newer than this library.

namespace rota::c {

// A struct of the interface: its name, the smallest size that a caller may give, and its defaults. The smallest does
// not grow with the struct: as numbers, the sizes of the first version.
#define ROTA_C_STRUCTS(X)                                                                  \
  X(rota_device_info, 96, ROTA_DEVICE_INFO_INIT)                                           \
  X(rota_backend_report, 48, ROTA_BACKEND_REPORT_INIT)                                     \
  X(rota_device_options, offsetof(rota_device_options, threads), ROTA_DEVICE_OPTIONS_INIT) \
  X(rota_view, offsetof(rota_view, dim_stride), ROTA_VIEW_INIT)                            \
  X(rota_slot_view, offsetof(rota_slot_view, dim_stride), ROTA_SLOT_VIEW_INIT)             \
  X(rota_sealed_view, 64, ROTA_SEALED_VIEW_INIT)                                           \
  X(rota_codec_options, 24, ROTA_CODEC_OPTIONS_INIT)                                       \
  X(rota_page_format, offsetof(rota_page_format, tokens), ROTA_PAGE_FORMAT_INIT)           \
  X(rota_kv_group, offsetof(rota_kv_group, k), ROTA_KV_GROUP_INIT)                         \
  X(rota_kv_cache_spec, offsetof(rota_kv_cache_spec, max_tokens), ROTA_KV_CACHE_SPEC_INIT) \
  X(rota_kv_group_memory, 136, ROTA_KV_GROUP_MEMORY_INIT)                                  \
  X(rota_kv_memory, 40, ROTA_KV_MEMORY_INIT)                                               \
  X(rota_kv_extension, 32, ROTA_KV_EXTENSION_INIT)                                         \
  X(rota_kv_counters, 256, ROTA_KV_COUNTERS_INIT)                                          \
  X(rota_kv_note, 32, ROTA_KV_NOTE_INIT)                                                   \
  X(rota_kv_save_options, offsetof(rota_kv_save_options, end), ROTA_KV_SAVE_OPTIONS_INIT)  \
  X(rota_kv_load_options, offsetof(rota_kv_load_options, onto), ROTA_KV_LOAD_OPTIONS_INIT) \
  X(rota_kv_saved_side, 48, ROTA_KV_SAVED_SIDE_INIT)                                       \
  X(rota_kv_saved_info, 64, ROTA_KV_SAVED_INFO_INIT)                                       \
  X(rota_token_run, offsetof(rota_token_run, page_table), ROTA_TOKEN_RUN_INIT)             \
  X(rota_store_pair, 24, ROTA_STORE_PAIR_INIT)                                             \
  X(rota_store_call, offsetof(rota_store_call, non_finite), ROTA_STORE_CALL_INIT)          \
  X(rota_rope_sections, 32, ROTA_ROPE_SECTIONS_INIT)                                       \
  X(rota_yarn, offsetof(rota_yarn, beta_fast), ROTA_YARN_INIT)                             \
  X(rota_rotary, offsetof(rota_rotary, rope_dim), ROTA_ROTARY_INIT)                        \
  X(rota_head_norm, offsetof(rota_head_norm, weight), ROTA_HEAD_NORM_INIT)                 \
  X(rota_rope_tensor, offsetof(rota_rope_tensor, norm), ROTA_ROPE_TENSOR_INIT)             \
  X(rota_rope_call, 48, ROTA_ROPE_CALL_INIT)                                               \
  X(rota_seal_page, offsetof(rota_seal_page, tokens), ROTA_SEAL_PAGE_INIT)                 \
  X(rota_seal_call, 56, ROTA_SEAL_CALL_INIT)                                               \
  X(rota_unseal_page, offsetof(rota_unseal_page, tokens), ROTA_UNSEAL_PAGE_INIT)           \
  X(rota_unseal_call, 40, ROTA_UNSEAL_CALL_INIT)                                           \
  X(rota_attend_call, offsetof(rota_attend_call, query_tokens), ROTA_ATTEND_CALL_INIT)     \
  X(rota_merge_call, offsetof(rota_merge_call, log_sum_exp), ROTA_MERGE_CALL_INIT)         \
  X(rota_word_range, 32, ROTA_WORD_RANGE_INIT)                                             \
  X(rota_checksum_call, 40, ROTA_CHECKSUM_CALL_INIT)

struct Rules {
  const char* name;
  std::size_t smallest, size, alignment;
  const void* defaults;
};

template <class T>
struct Struct;

#define ROTA_C_STRUCT(type, smallest_size, init)                                                    \
  template <>                                                                                       \
  struct Struct<type> {                                                                             \
    static constexpr type kDefaults = init;                                                         \
    static constexpr Rules kRules{#type, (smallest_size), sizeof(type), alignof(type), &kDefaults}; \
    static_assert((smallest_size) % alignof(type) == 0 && std::is_standard_layout_v<type>);         \
  };
ROTA_C_STRUCTS(ROTA_C_STRUCT)

// All structs of a header, for languages without macros.
#define ROTA_C_RULES(type, smallest_size, init) Struct<type>::kRules,
struct StructList {
  const char* header;
  std::span<const Rules> rules;
};
Status init_struct(const Where& call, const StructList& known, const char* name, void* structure, std::size_t size);

// An error unless the struct's size is one that this library can read, or write if it is a result.
Status check_size(const Where& where, const void* structure, const Rules& rules);

// The caller's members, and the defaults of those that it lacks.
Status take_bytes(const Where& where, const void* from, const Rules& rules, void* to);

// As much as the caller has, with its own struct_size; zeros behind that.
void put_bytes(const void* value, const Rules& rules, void* to) noexcept;

std::size_t size_of_struct(const void* structure) noexcept;

template <class T>
Status take(const Where& where, const T* from, T& to) {
  if (Status status = take_bytes(where, from, Struct<T>::kRules, &to); !status) return status;
  if constexpr (requires { to.reserved; }) {
    if (to.reserved != 0) return refuse(where.in("reserved"), std::to_string(to.reserved), "0", Errc::unsupported);
  }
  return {};
}

// Whether a result can be written; to be asked before anything is done.
template <class T>
Status check_result(const Where& where, const T* result) {
  return check_size(where, result, Struct<T>::kRules);
}

// Precondition: check_result() accepted it.
template <class T>
void put(const T& value, T* result) noexcept {
  put_bytes(&value, Struct<T>::kRules, result);
}

// Element `index` of an array whose structs may be larger or smaller than ours, as far apart as the first one says.
template <class T>
T* element(T* first, std::size_t index) noexcept {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(first) + index * size_of_struct(first));
}

// An error unless all elements have the size of the first.
Status check_apart(const Where& element, std::size_t size, std::size_t first_size);

// body(where, struct) for each element of an array.
template <class T, class Body>
Status each(const Where& where, const T* first, std::size_t count, Body&& body) {
  if (count == 0) return {};
  if (Status status = check_given(where, first); !status) return status;
  T one;
  for (std::size_t i = 0; i < count; ++i) {
    const T* const at = element(first, i);
    const Where here = where.at(i);
    if (Status status = check_apart(here, size_of_struct(at), size_of_struct(first)); !status) return status;
    if (Status status = take(here, at, one); !status) return status;
    if (Status status = body(here, one); !status) return status;
  }
  return {};
}

}  // namespace rota::c
