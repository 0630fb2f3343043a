#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "rota/codec.h"
#include "rota/dtype.h"
#include "rota/export.h"
#include "rota/result.h"
#include "rota/token_run.h"

// The description of a cache, and the memory that it takes. Neither needs a device.

namespace rota::inline ROTA_ABI {

// How keys or values are stored: as elements of a type, or in sealed pages.
using KvCodec = std::variant<DType, Turbo>;

// The codec of sealed pages, or none where `codec` is an element type.
constexpr std::optional<Codec> sealed_codec(const KvCodec& codec) noexcept {
  return std::visit(
      []<class Kept>(const Kept& kept) -> std::optional<Codec> {
        if constexpr (std::is_same_v<Kept, DType>) {
          return {};
        } else {
          return kept;
        }
      },
      codec);
}

// The inverse of sealed_codec().
constexpr KvCodec kv_codec(const Codec& codec) noexcept {
  return std::visit([](const auto& sealed) -> KvCodec { return sealed; }, codec);
}

// A codec, and its name in commands and files.
struct NamedCodec {
  std::string_view name;
  KvCodec codec;
};

// Every codec.
inline constexpr std::array kCodecs{
    NamedCodec{"f32", DType::f32},  NamedCodec{"f16", DType::f16},  NamedCodec{"bf16", DType::bf16},
    NamedCodec{"turbo2", turbo(2)}, NamedCodec{"turbo3", turbo(3)}, NamedCodec{"turbo4", turbo(4)},
    NamedCodec{"turbo5", turbo(5)}, NamedCodec{"turbo6", turbo(6)}, NamedCodec{"turbo8", turbo(8)},
};

// The codec's name in kCodecs. The name of a Turbo tells only its bits. "?" for what is no codec.
ROTA_API std::string_view name(const KvCodec& codec) noexcept;

// The codec of kCodecs with that name, or an error that lists them.
ROTA_API Result<KvCodec> codec_named(std::string_view name);

// The numbers 0 to count - 1.
inline std::vector<std::uint32_t> first_layers(std::uint32_t count) {
  std::vector<std::uint32_t> layers(count);
  std::iota(layers.begin(), layers.end(), 0U);
  return layers;
}

// A layer without keys and values of its own: its queries see those of another.
struct KvSharedLayer {
  Required<std::uint32_t> layer, from;  // the model's numbers
};

// Layers that are stored alike.
struct KvGroup {
  std::vector<std::uint32_t> layers;  // the model's numbers, in any order; no other group has them
  Required<std::uint32_t> kv_heads;
  Required<std::uint32_t> head_dim;             // of keys
  std::optional<std::uint32_t> value_dim = {};  // none: head_dim
  KvCodec k = DType::f16, v = DType::f16;
  // Values are the first value_dim numbers of their keys, which are not sealed, and take no memory of their own: MLA
  // with its keys absorbed. `v` is not looked at, and a step appends keys alone.
  bool v_in_k = false;
  DType dense = DType::f16;                  // type of the tail and the sinks, if keys or values are sealed
  std::uint32_t page = 128;                  // tokens per page: 128 or 64
  std::uint64_t tail = 128;                  // newest tokens: they stay dense, and truncate() takes them back for free
  std::uint64_t sinks = 4;                   // first tokens that stay dense beside their sealed page; at most `page`
  std::optional<std::uint64_t> window = {};  // newest keys that a token sees, including its own; none: all
  bool keep_sinks = false;                   // the sinks stay, and are seen besides the window (StreamingLLM)
  std::vector<KvSharedLayer> shared = {};    // layers that share the cache of one of `layers`, and are never appended
};

// In which order the layers of a step are computed.
enum class LayerOrder : std::uint8_t {
  in_turn,   // each is attended to before the next of its group is appended: a long step is dense in one at a time
  together,  // several are appended before they are attended to: a step is dense in all of them
};

// What KvCache::create() takes. At most one of max_tokens and max_bytes is given. With neither, the limit is what the
// device has memory and addresses for, all pools at their largest.
struct KvCacheSpec {
  std::vector<KvGroup> groups;
  std::optional<std::uint64_t> max_tokens = {};  // of all sequences together
  std::optional<std::uint64_t> max_bytes = {};   // of device memory: for as many tokens as fit
  // Takes all memory as the cache is made, instead of what is used. So does a device that cannot grow, or not so far
  // (Limits::max_sparse_bytes, of all its caches together). Then a limit must be given.
  bool at_once = false;
  std::uint32_t max_sequences = 1;
  std::uint64_t max_step_tokens = 512;  // of all sequences in one step, such as a chunk of a prompt; they enter dense
  LayerOrder layer_order = LayerOrder::in_turn;

  // Spreads sealing, so that no step of one token takes much longer than others: a page that is due is sealed layer by
  // layer while so many tokens come, at most a page, and stays dense until then. None: at once, as the next step
  // begins. Groups with a window seal at once.
  std::optional<std::uint64_t> seal_within = {};
};

// Pages of equal size. Each holds a page of tokens for all layers and heads of its group; a step's for one layer.
struct KvPoolSize {
  std::uint64_t pages = 0, page_bytes = 0;

  constexpr std::uint64_t bytes() const noexcept { return pages * page_bytes; }
  friend constexpr bool operator==(const KvPoolSize&, const KvPoolSize&) = default;
};

// The memory of a group's keys, or of its values.
struct KvSideMemory {
  KvPoolSize sealed, dense, sinks, step;

  constexpr std::uint64_t bytes() const noexcept {
    return sealed.bytes() + dense.bytes() + sinks.bytes() + step.bytes();
  }
  friend constexpr bool operator==(const KvSideMemory&, const KvSideMemory&) = default;
};

// The memory of a group.
struct KvGroupMemory {
  KvSideMemory k, v;

  constexpr std::uint64_t bytes() const noexcept { return k.bytes() + v.bytes(); }
  friend constexpr bool operator==(const KvGroupMemory&, const KvGroupMemory&) = default;
};

// The memory of a cache.
struct KvMemory {
  std::uint64_t max_tokens = 0;
  std::vector<KvGroupMemory> groups = {};  // as in KvCacheSpec::groups
  std::uint64_t counter_bytes = 0;
  std::uint64_t host_bytes = 0;  // of the host, at most, if sequences share no pages; grows with use; not in bytes()

  // Of the device.
  constexpr std::uint64_t bytes() const noexcept {
    std::uint64_t sum = counter_bytes;
    for (const KvGroupMemory& group : groups) sum += group.bytes();
    return sum;
  }
  friend constexpr bool operator==(const KvMemory&, const KvMemory&) = default;
};

// The most that a cache of the description allocates; to the byte, if it takes its memory at once or reserves it. Then
// sequences that are only extended do not run out of pages within max_tokens, max_sequences and max_step_tokens, if
// each step is submitted with all layers before the next begins and at most one earlier KvStep is still held. A
// description without limits is refused.
ROTA_API Result<KvMemory> estimate(const KvCacheSpec& spec);

}  // namespace rota::inline ROTA_ABI
