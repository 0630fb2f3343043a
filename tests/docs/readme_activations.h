#pragma once

#include <rota/rota.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

// Stands for the model of the README's program: 32 query heads and 8 KV heads of 128 dims, one token.
struct Activations {
  rota::MutView q, k, v, out;
};

inline Activations activations(rota::Device& device, std::uint32_t layer) {
  constexpr std::uint64_t kDim = 128, kHeads = 32, kKvHeads = 8;
  const auto filled = [&](std::uint64_t heads) {
    const std::vector<float> numbers(heads * kDim, 0.1F * static_cast<float>(layer));
    auto buffer = device.allocate(numbers.size() * sizeof(float)).value();
    buffer.write(std::as_bytes(std::span(numbers))).value();
    return rota::MutView::token_major(buffer, rota::DType::f32, {.tokens = 1, .heads = heads, .dim = kDim});
  };
  return {filled(kHeads), filled(kKvHeads), filled(kKvHeads), filled(kHeads)};
}
