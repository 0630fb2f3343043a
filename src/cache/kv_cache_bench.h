#pragma once

#include <cstdint>

#include "rota/rota.h"

// The model of the cache's benchmarks: 32 layers with 8 KV heads of 128, K and V in 4 bits.

namespace rota::cache {

inline constexpr std::uint32_t kBenchLayers = 32, kBenchHeads = 8, kBenchDim = 128;

inline KvGroup bench_group() {
  return {.layers = first_layers(kBenchLayers),
          .kv_heads = kBenchHeads,
          .head_dim = kBenchDim,
          .k = turbo(4),
          .v = turbo(4)};
}

}  // namespace rota::cache
