#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache_reference.h"
#include "rota/rota.h"

// The tokens of a step.

namespace rota::cache::reference {

// Values that every dtype holds exactly.
inline Values draw(const GroupSideSpec& group_side, std::mt19937_64& random) {
  auto values = std::make_shared<std::vector<float>>(group_side.vector_size());
  for (float& value : *values) value = static_cast<float>(static_cast<int>(random() % 255) - 127) * 0.03125F;
  return values;
}

// Of each key its first numbers.
inline Values first_dims(const Values& keys, const GroupSideSpec& of_keys, const GroupSideSpec& of_values) {
  auto values = std::make_shared<std::vector<float>>();
  for (std::uint64_t i = 0; i < keys->size(); ++i) {
    if (i % of_keys.dim < of_values.dim) values->push_back((*keys)[i]);
  }
  return values;
}

// Tokens of some sequences, in any order.
inline std::vector<KvExtension> choose_extensions(std::span<const SequenceState> sequences, const KvCacheSpec& spec,
                                                  std::mt19937_64& random) {
  std::vector<KvExtension> extensions;
  std::uint64_t total = 0;
  for (const SequenceState& sequence : sequences) {
    if (random() % 2 == 0 && !(extensions.empty() && &sequence == &sequences.back())) continue;
    const std::uint64_t most = random() % 4 == 0 ? spec.max_step_tokens : 5;
    const std::uint64_t tokens = 1 + random() % most;
    if (total + tokens > spec.max_step_tokens) continue;
    total += tokens;
    extensions.push_back({sequence.sequence, tokens});
  }
  std::ranges::shuffle(extensions, random);
  // An engine may mix tokens of its sequences.
  while (!extensions.empty() && random() % 4 == 0 && total + 3 <= spec.max_step_tokens) {
    const std::uint64_t tokens = 1 + random() % 3;
    total += tokens;
    extensions.push_back({extensions[random() % extensions.size()].sequence, tokens});
  }
  return extensions;
}

struct LayerOf {
  std::size_t group, index;
};

inline std::vector<LayerOf> layers_of(const KvCacheSpec& spec) {
  std::vector<LayerOf> layers;
  for (std::size_t group = 0; group < spec.groups.size(); ++group) {
    for (std::size_t i = 0; i < spec.groups[group].layers.size(); ++i) layers.push_back({group, i});
  }
  return layers;
}

struct Batch {
  std::vector<KvExtension> extensions;
  std::vector<std::vector<Values>> values = {};  // [group side][token]
  Buffer source = {};
  std::vector<std::uint64_t> offsets = {};  // of each group side in the source

  std::string text() const {
    std::uint64_t total = 0;
    for (const KvExtension& extension : extensions) total += extension.tokens;
    return fmt::format("{} by {}", extensions.size(), total);
  }

  void upload(Device& device) {
    std::vector<float> all;
    for (const std::vector<Values>& group_side : values) {
      offsets.push_back(all.size());
      for (const Values& token : group_side) all.insert(all.end(), token->begin(), token->end());
    }
    source = device.allocate(all.size() * sizeof(float)).value();
    source.write(std::as_bytes(std::span(all))).value();
  }

  // One layer of a group side.
  View view(std::size_t group_side, const GroupSideSpec& spec, std::size_t layer) const {
    return View{.buffer = source,
                .dtype = DType::f32,
                .shape = {.tokens = values[group_side].size(), .heads = spec.heads, .dim = spec.dim},
                .offset = offsets[group_side] + layer * spec.heads * spec.dim,
                .token_stride = spec.vector_size(),
                .head_stride = spec.dim};
  }
};

}  // namespace rota::cache::reference
