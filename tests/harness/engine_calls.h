#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rota/rota.h"

// Small calls that an engine makes, with results that depend on each of them.

namespace rota::test {

inline constexpr std::uint64_t kTokens = 3, kHeads = 2, kDim = 8;
inline constexpr std::uint64_t kBytes = kTokens * kHeads * kDim * sizeof(float);
inline constexpr Shape kShape{.tokens = kTokens, .heads = kHeads, .dim = kDim};
inline constexpr std::array<std::int64_t, kTokens> kPositions{3, 4, 1000};

// The heads' coordinates become different, and depend on the position.
inline void rotate(Encoder& encoder, const Buffer& x) {
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const RopeTensor tensor = RopeTensor::in_place(MutView::token_major(x, DType::f32, kShape));
  rope(encoder, {.tensors = {&tensor, 1}, .positions = kPositions, .rotary = rotary});
}

// Queries and keys are the same numbers.
inline void attend_to(Encoder& encoder, const Buffer& x, const Buffer& values, const Buffer& out) {
  const SlotShape slots{.page_slots = kTokens, .heads = kHeads, .dim = kDim};
  const TokenRun run{.tokens = kTokens, .position = 0, .capacity = kTokens};
  const std::array<std::uint64_t, 1> rows{kTokens};
  const KvView kv = KvView::of_slots(SlotView::token_major(x, DType::f32, slots),
                                     SlotView::token_major(values, DType::f32, slots), {&run, 1});
  attend(encoder, {.q = View::token_major(x, DType::f32, kShape),
                   .kv = kv,
                   .out = MutView::token_major(out, DType::f32, kShape),
                   .scale = 0.3,
                   .query_tokens = rows});
}

inline std::vector<float> floats_of(const Buffer& buffer) {
  std::vector<float> numbers(buffer.size_bytes() / sizeof(float));
  buffer.read(std::as_writable_bytes(std::span(numbers))).value();
  return numbers;
}

inline bool any_says(const std::vector<std::string>& messages, std::string_view text) {
  return std::ranges::any_of(messages, [&](const auto& message) { return message.find(text) != std::string::npos; });
}

// What an engine's chain of calls gives, by a device of Rota's own.
inline std::vector<float> chain_on(Device& device) {
  std::vector<float> filled(kBytes / sizeof(float), 1.5F);
  Buffer x = device.allocate(kBytes).value();
  Buffer values = device.allocate(kBytes).value();
  Buffer out = device.allocate(kBytes).value();
  x.write(std::as_bytes(std::span(filled))).value();
  Encoder first = device.encoder();
  rotate(first, x);
  std::move(first).submit().value().wait().value();
  const std::vector<float> rotated = floats_of(x);
  values.write(std::as_bytes(std::span(rotated))).value();
  Encoder second = device.encoder();
  attend_to(second, x, values, out);
  std::move(second).submit().value().wait().value();
  return floats_of(out);
}

// Steps of a cache, each recorded into a command buffer of its own, or submitted.
inline std::vector<float> cache_steps(Device& device, const std::function<void(Encoder&&)>& run) {
  constexpr std::uint64_t kHeadDim = 16;
  KvCache cache = KvCache::create(device, {.groups = {{.layers = {0},
                                                       .kv_heads = 1,
                                                       .head_dim = kHeadDim,
                                                       .k = turbo(4),
                                                       .v = turbo(4),
                                                       .page = 64,
                                                       .tail = 0}},
                                           .max_tokens = 512})
                      .value();
  const Sequence sequence = cache.open_sequence().value();
  Buffer out = device.allocate(kHeadDim * sizeof(float)).value();
  std::vector<float> results;
  for (const std::uint64_t tokens : {std::uint64_t{200}, std::uint64_t{1}, std::uint64_t{70}}) {
    std::vector<float> numbers(tokens * kHeadDim);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i * tokens));
    Buffer x = device.allocate(numbers.size() * sizeof(float)).value();
    x.write(std::as_bytes(std::span(numbers))).value();
    Encoder encoder = device.encoder();
    auto step = cache.extend(encoder, sequence, tokens).value();
    const View heads = View::token_major(x, DType::f32, {.tokens = tokens, .heads = 1, .dim = kHeadDim});
    step.append(encoder, 0, heads, heads);
    attend(encoder, {.q = heads.slice(tokens - 1, 1),
                     .kv = step.view(0).value(),
                     .out = MutView::token_major(out, DType::f32, {.tokens = 1, .heads = 1, .dim = kHeadDim}),
                     .scale = 0.25});
    run(std::move(encoder));
    const std::vector<float> result = floats_of(out);
    results.insert(results.end(), result.begin(), result.end());
  }
  return results;
}

}  // namespace rota::test
