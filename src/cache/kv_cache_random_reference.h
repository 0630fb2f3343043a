#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "rota/rota.h"

// Random descriptions of caches.

namespace rota::cache::reference {

inline KvCodec random_codec(std::mt19937_64& random) {
  constexpr std::array<std::uint32_t, 4> kBits{4, 4, 3, 8};
  const auto choice = random() % 10;
  if (choice < 3) return kDTypes[choice].dtype;
  Turbo codec = turbo(kBits[random() % kBits.size()]);
  codec.key_mean = random() % 4 != 0;
  if (random() % 4 != 0) codec.scale = ScaleRule::rms;  // the reference takes a third of the time
  return codec;
}

inline KvGroup random_group(std::mt19937_64& random, std::vector<std::uint32_t> layers) {
  KvGroup group{.layers = std::move(layers),
                .kv_heads = static_cast<std::uint32_t>(1 + random() % 2),
                .head_dim = 16,
                .k = random_codec(random),
                .v = random_codec(random),
                .dense = kDTypes[random() % 2 == 0 ? 1 : random() % 3].dtype,
                .page = random() % 2 == 0 ? 64U : 128U,
                .tail = random() % 3 == 0 ? 0 : random() % 301,
                .sinks = random() % 3 == 0 ? 0 : random() % 9};
  if (random() % 2 == 0) group.value_dim = 32;
  if (std::holds_alternative<DType>(group.k) && random() % 3 == 0) {
    group.v_in_k = true;
    group.head_dim = 48;
  }
  if (random() % 3 == 0) group.window = std::max<std::uint64_t>(group.tail, 1) + random() % 400;
  return group;
}

inline KvCacheSpec random_spec(std::mt19937_64& random) {
  KvCacheSpec spec{.groups = {random_group(random, {4, 1})},
                   .max_tokens = 300 + random() % 3000,
                   .at_once = random() % 5 == 0,
                   .max_sequences = static_cast<std::uint32_t>(1 + random() % 5),
                   .max_step_tokens = random() % 3 == 0 ? 1 + random() % 4 : 1 + random() % 700,
                   .layer_order = random() % 4 == 0 ? LayerOrder::together : LayerOrder::in_turn};
  using Layers = std::vector<std::uint32_t>;
  if (random() % 2 == 0) spec.groups.push_back(random_group(random, random() % 2 == 0 ? Layers{7} : Layers{9, 7}));
  if (random() % 3 == 0) spec.seal_within = 1 + random() % 64;
  return spec;
}

}  // namespace rota::cache::reference
