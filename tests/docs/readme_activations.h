#pragma once

#include <rota/rota.h>

#include <cmath>
#include <cstdint>

#include "make_heads.h"

// Stands for the model of the README's program: 32 query heads and 8 KV heads of 128 dims, one token.
struct Activations {
  rota::MutView q, k, v, out;
};

inline Activations activations(rota::Device& device, [[maybe_unused]] std::uint32_t layer) {
  constexpr rota::Shape kQueries{.tokens = 1, .heads = 32, .dim = 128}, kKeys{.tokens = 1, .heads = 8, .dim = 128};
  return {make_heads(device, kQueries), make_heads(device, kKeys), make_heads(device, kKeys),
          make_heads(device, kQueries)};
}
