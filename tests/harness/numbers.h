#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "rota/rota.h"

namespace rota::test {

// Normally distributed, the same for the same seed.
inline std::vector<float> normal_numbers(std::uint64_t seed, std::uint64_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

inline Buffer upload(Device& device, std::span<const float> numbers) {
  Buffer buffer = device.allocate(numbers.size_bytes()).value();
  buffer.write(std::as_bytes(numbers)).value();
  return buffer;
}

}  // namespace rota::test
