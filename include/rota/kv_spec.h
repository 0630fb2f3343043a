#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "rota/codec.h"
#include "rota/dtype.h"
#include "rota/export.h"
#include "rota/result.h"
#include "rota/token_run.h"

// What a cache is made of, and what it takes: known before there is a device.

namespace rota::inline ROTA_ABI {

// How keys or values are kept: as they are, or in sealed pages.
using KvCodec = std::variant<DType, Turbo>;

// The codec of what is sealed; none of what is kept dense.
constexpr std::optional<Codec> sealed_codec(const KvCodec& codec) noexcept {
  return std::visit(
      []<class Kept>(const Kept& kept) -> std::optional<Codec> {
        if constexpr (std::is_same_v<Kept, DType>)
          return {};
        else
          return kept;
      },
      codec);
}

// The reverse.
constexpr KvCodec kv_codec(const Codec& codec) noexcept {
  return std::visit([](const auto& sealed) -> KvCodec { return sealed; }, codec);
}

struct NamedCodec {
  std::string_view name;
  KvCodec codec;
};

// The only list of codecs, with the names that commands and files use.
inline constexpr std::array kCodecs{
    NamedCodec{"f32", DType::f32},  NamedCodec{"f16", DType::f16},  NamedCodec{"bf16", DType::bf16},
    NamedCodec{"turbo2", turbo(2)}, NamedCodec{"turbo3", turbo(3)}, NamedCodec{"turbo4", turbo(4)},
    NamedCodec{"turbo5", turbo(5)}, NamedCodec{"turbo6", turbo(6)}, NamedCodec{"turbo8", turbo(8)},
};

// Of a Turbo the name tells only the bits. "?" for what is no codec.
ROTA_API std::string_view name(const KvCodec& codec) noexcept;

ROTA_API Result<KvCodec> codec_named(std::string_view name);

inline std::vector<std::uint32_t> first_layers(std::uint32_t count) {
  std::vector<std::uint32_t> layers(count);
  std::iota(layers.begin(), layers.end(), 0U);
  return layers;
}

// Layers that are alike.
struct KvGroup {
  std::vector<std::uint32_t> layers;  // the model's own numbers, in any order; no other group has them
  Required<std::uint32_t> kv_heads;
  Required<std::uint32_t> head_dim;             // of keys
  std::optional<std::uint32_t> value_dim = {};  // else head_dim
  KvCodec k = DType::f16, v = DType::f16;
  DType dense = DType::f16;                  // of sealed keys and values while they are dense: tail and sinks
  std::uint32_t page = 128;                  // tokens; or 64
  std::uint64_t tail = 128;                  // newest tokens that are dense, and that truncate() takes back for nothing
  std::uint64_t sinks = 4;                   // first tokens that stay dense where others are sealed; at most a page
  std::optional<std::uint64_t> window = {};  // newest keys that a token sees, itself among them; else all
};

struct KvCacheSpec {
  std::vector<KvGroup> groups;
  std::optional<std::uint64_t> max_tokens = {};  // room for so many, of all sequences together; or
  std::optional<std::uint64_t> max_bytes = {};   // for as many as fit
  std::uint32_t max_sequences = 1;
  std::uint64_t max_step_tokens = 512;  // of all sequences in one step: a chunk of a prompt. They enter dense
};

// Pages of equal size. Each holds a page of tokens for all layers and heads of its group.
struct KvPoolSize {
  std::uint64_t pages = 0, page_bytes = 0;

  constexpr std::uint64_t bytes() const noexcept { return pages * page_bytes; }
  friend constexpr bool operator==(const KvPoolSize&, const KvPoolSize&) = default;
};

struct KvSideMemory {
  KvPoolSize sealed, dense, sinks;

  constexpr std::uint64_t bytes() const noexcept { return sealed.bytes() + dense.bytes() + sinks.bytes(); }
  friend constexpr bool operator==(const KvSideMemory&, const KvSideMemory&) = default;
};

struct KvGroupMemory {
  KvSideMemory k, v;

  constexpr std::uint64_t bytes() const noexcept { return k.bytes() + v.bytes(); }
  friend constexpr bool operator==(const KvGroupMemory&, const KvGroupMemory&) = default;
};

struct KvMemory {
  std::uint64_t max_tokens = 0;
  std::vector<KvGroupMemory> groups = {};  // as in the description
  std::uint64_t counter_bytes = 0;
  // The host's own, at most, for sequences that share no pages: lists of pages, which grow with use. Not in bytes().
  std::uint64_t host_bytes = 0;

  constexpr std::uint64_t bytes() const noexcept {
    std::uint64_t sum = counter_bytes;
    for (const KvGroupMemory& group : groups) sum += group.bytes();
    return sum;
  }
  friend constexpr bool operator==(const KvMemory&, const KvMemory&) = default;
};

// What KvCache::create allocates for the same description, to the byte. Sequences that are only extended never run out
// of pages within max_tokens, max_sequences and max_step_tokens, if each step is submitted whole before the next begins
// and at most one earlier KvStep is still held.
ROTA_API Result<KvMemory> estimate(const KvCacheSpec& spec);

}  // namespace rota::inline ROTA_ABI
