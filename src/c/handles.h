#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/status.h"
#include "rota/c.h"
#include "rota/rota.h"

// What handles are. Each begins with a number that tells its kind, so that something else is refused, not followed.

namespace rota::c {

// Vectors of the ops' arguments, kept so that a call takes no memory once an encoder has grown. Empty between calls:
// views hold buffers.
struct Scratch {
  std::vector<StorePair> pairs;
  std::vector<TokenRun> runs;
  std::vector<RopeTensor> tensors;
  std::vector<SealPage> seals;
  std::vector<UnsealPage> unseals;
  std::vector<WordRange> ranges;
  std::vector<KvExtension> extensions;
  std::vector<Sequence> sequences;

  void clear() noexcept {
    pairs.clear();
    runs.clear();
    tensors.clear();
    seals.clear();
    unseals.clear();
    ranges.clear();
    extensions.clear();
    sequences.clear();
  }
};

// A group as C sees it, and what its pointers lead to.
struct GroupOfSaved {
  rota_kv_group group = ROTA_KV_GROUP_INIT;
  rota_codec_options k = ROTA_CODEC_OPTIONS_INIT, v = ROTA_CODEC_OPTIONS_INIT;
  std::vector<rota_kv_shared_layer> shared;
};

// librota-store knows these numbers, too, and rota_kv_cache: a new kind comes last.
enum class Kind : std::uint64_t {
  none = 0,
  backends = 0x526f7461'43000001,
  device,
  buffer,
  encoder,
  fence,
  kv_cache,
  kv_step,
  kv_notes,
  kv_saved,
  // Of librota-store.
  page_store,
  prefix_store,
  prefix_match,
};

}  // namespace rota::c

struct rota_backends {
  rota::c::Kind kind;
  std::vector<rota::BackendReport> reports;
  std::vector<std::vector<std::string>> features;  // of each backend's devices
};

struct rota_device {
  rota::c::Kind kind;
  rota::Device device;
  std::string features;
};

struct rota_buffer {
  rota::c::Kind kind;
  rota::Buffer buffer;
};

struct rota_encoder {
  rota::c::Kind kind;
  rota::Encoder encoder;
  rota::Status refused = {};  // by C's own checks; the C++ encoder keeps the others
  rota::c::Scratch scratch = {};

  rota::Status status() const { return refused ? encoder.status() : refused; }
};

struct rota_fence {
  rota::c::Kind kind;
  rota::Fence fence = {};
};

struct rota_kv_cache {
  rota::c::Kind kind;
  rota::KvCache cache;
};

struct rota_kv_step {
  rota::c::Kind kind;
  std::optional<rota::KvStep> step = {};  // none only while it is made
};

struct rota_kv_notes {
  rota::c::Kind kind;
  std::vector<rota::KvNote> notes = {};
};

struct rota_kv_saved {
  rota::c::Kind kind;
  rota::KvSaved saved;
  std::vector<rota::c::GroupOfSaved> groups = {};
};

namespace rota::c {

template <class Handle>
inline constexpr Kind kKind = Kind::none;
template <>
inline constexpr Kind kKind<rota_backends> = Kind::backends;
template <>
inline constexpr Kind kKind<rota_device> = Kind::device;
template <>
inline constexpr Kind kKind<rota_buffer> = Kind::buffer;
template <>
inline constexpr Kind kKind<rota_encoder> = Kind::encoder;
template <>
inline constexpr Kind kKind<rota_fence> = Kind::fence;
template <>
inline constexpr Kind kKind<rota_kv_cache> = Kind::kv_cache;
template <>
inline constexpr Kind kKind<rota_kv_step> = Kind::kv_step;
template <>
inline constexpr Kind kKind<rota_kv_notes> = Kind::kv_notes;
template <>
inline constexpr Kind kKind<rota_kv_saved> = Kind::kv_saved;

Status check_kind(const Where& where, const void* handle, Kind wanted);

template <class Handle>
Status check_handle(const Where& where, const Handle* handle) {
  return check_kind(where, handle, kKind<Handle>);
}

template <class Handle, class... Parts>
std::unique_ptr<Handle> make(Parts&&... parts) {
  return std::unique_ptr<Handle>(new Handle{kKind<Handle>, std::forward<Parts>(parts)...});
}

// A handle that has ended is no handle any more, as long as its memory is not used again.
template <class Handle>
void destroy(const char* call, const char* argument, Handle* handle) noexcept {
  if (handle == nullptr) return;
  const Where where{nullptr, call};
  const Status known = attempt([&]() -> Status { return check_handle(where.in(argument), handle); });
  if (!known) {
    static_cast<void>(told(known));
    return;
  }
  std::memset(static_cast<void*>(&handle->kind), 0, sizeof(handle->kind));
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps what it would take for a dead store
  delete handle;
}

}  // namespace rota::c
