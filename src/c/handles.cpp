#include "c/handles.h"

#include <array>

// Compiled into librota-store as well: nothing here is exported.

namespace rota::c {
namespace {

constexpr std::array kNames{"rota_backends", "rota_device",     "rota_buffer",       "rota_encoder",
                            "rota_fence",    "rota_kv_cache",   "rota_kv_step",      "rota_kv_notes",
                            "rota_kv_saved", "rota_page_store", "rota_prefix_store", "rota_prefix_match"};
static_assert(kNames.size() ==
              static_cast<std::uint64_t>(Kind::prefix_match) - static_cast<std::uint64_t>(Kind::backends) + 1);

const char* name_of(Kind kind) noexcept {
  const std::uint64_t index = static_cast<std::uint64_t>(kind) - static_cast<std::uint64_t>(Kind::backends);
  return index < kNames.size() ? kNames[index] : nullptr;
}

}  // namespace

Status check_kind(const Where& where, const void* handle, Kind wanted) {
  Kind kind = Kind::none;
  if (handle != nullptr) std::memcpy(&kind, handle, sizeof(kind));
  if (kind == wanted) return {};
  const char* const other = name_of(kind);
  return refuse(where,
                handle == nullptr  ? "NULL"
                : other != nullptr ? std::string("a ") + other
                                   : "no handle, or one that was destroyed",
                std::string("a ") + name_of(wanted));
}

}  // namespace rota::c
