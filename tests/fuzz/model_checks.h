#pragma once

#include <cstdint>
#include <cstdlib>
#include <set>

#include "model/model.h"
#include "rota/kv_spec.h"

// What holds of every model that was read from anyone's file.

namespace rota::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void check_shape(const tool::Model& model) {
  std::set<std::uint32_t> seen;
  require(!model.groups.empty() && model.layers() <= tool::kMostModelLayers);
  for (const tool::LayerGroup& group : model.groups) {
    require(!group.layers.empty() && group.kv_heads > 0 && group.query_heads % group.kv_heads == 0);
    require(group.head_dim > 0 && group.value_dim > 0 && (!group.window || *group.window > 0));
    for (const std::uint32_t layer : group.layers) require(seen.insert(layer).second);
  }
}

inline void check_estimate(const tool::Model& model, const KvCodec& codec) {
  KvCacheSpec spec{.groups = tool::groups_of(model, {.k = codec, .v = codec}),
                   .max_tokens = model.context.value_or(4096)};
  const auto memory = estimate(spec);
  if (!memory) return;
  require(memory->groups.size() == model.groups.size() && memory->max_tokens == spec.max_tokens);
  spec.max_bytes = memory->bytes();
  spec.max_tokens.reset();
  const auto most = estimate(spec);
  require(most.ok() && most->bytes() <= memory->bytes() && most->max_tokens >= memory->max_tokens);
}

inline void check_model(const tool::Model& model) {
  check_shape(model);
  check_estimate(model, DType::f16);
  check_estimate(model, turbo(4));
}

}  // namespace rota::fuzz
