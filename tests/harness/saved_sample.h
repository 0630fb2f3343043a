#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rota/rota.h"

// What tests/saved/two_groups.rota was saved from: written once, and read by every later version.

namespace rota::test {

inline KvCacheSpec saved_sample_spec() {
  const KvGroup sealed{
      .layers = {0, 2, 3}, .kv_heads = 1, .head_dim = 16, .k = turbo(4), .v = turbo(3), .page = 64, .tail = 64};
  const KvGroup windowed{.layers = {1}, .kv_heads = 1, .head_dim = 16, .page = 64, .tail = 64, .window = 100};
  return {.groups = {sealed, windowed}, .max_tokens = 1000, .max_sequences = 2};
}

inline constexpr std::uint64_t kSavedSampleTokens = 200;

inline std::vector<KvNote> saved_sample_notes() {
  return {{128, {std::byte{0}, std::byte{1}, std::byte{2}}}, {kSavedSampleTokens, {}}};
}

inline Sequence make_saved_sample(Device& device, KvCache& cache) {
  std::vector<float> numbers(kSavedSampleTokens * 16);
  for (std::uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 7919 % 511) * 0.0078125F - 2;
  Buffer buffer = device.allocate(numbers.size() * sizeof(float)).value();
  buffer.write(std::as_bytes(std::span(numbers))).value();
  const View x = View::token_major(buffer, DType::f32, {.tokens = kSavedSampleTokens, .heads = 1, .dim = 16});
  const Sequence sequence = cache.open_sequence().value();
  Encoder encoder = device.encoder();
  KvStep step = cache.extend(encoder, sequence, kSavedSampleTokens).value();
  for (const std::uint32_t layer : {0U, 1U, 2U, 3U}) step.append(encoder, layer, x, x);
  std::move(encoder).submit().value().wait().value();
  return sequence;
}

}  // namespace rota::test
