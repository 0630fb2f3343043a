#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rota::tool {

std::string LayerGroup::kind() const {
  return fmt::format("{}, {} x {}{}", window ? fmt::format("window {}", *window) : "full attention", kv_heads, head_dim,
                     value_dim == head_dim ? "" : fmt::format("/{}", value_dim));
}

std::uint64_t Model::layers() const noexcept {
  std::uint64_t count = 0;
  for (const LayerGroup& group : groups) count += group.layers.size();
  return count;
}

void add_layer(Model& model, LayerGroup like, std::uint32_t layer) {
  const auto alike = std::ranges::find_if(model.groups, [&](const LayerGroup& other) {
    return other.query_heads == like.query_heads && other.kv_heads == like.kv_heads &&
           other.head_dim == like.head_dim && other.value_dim == like.value_dim && other.window == like.window;
  });
  LayerGroup& into = alike == model.groups.end() ? model.groups.emplace_back(std::move(like)) : *alike;
  into.layers.push_back(layer);
}

std::vector<KvGroup> groups_of(const Model& model, const CacheOptions& options) {
  std::vector<KvGroup> groups;
  const auto* const k = std::get_if<DType>(&options.k);
  const auto* const v = std::get_if<DType>(&options.v);
  const bool one_dense_type = k != nullptr && v != nullptr && *k == *v;
  for (const LayerGroup& group : model.groups) {
    groups.push_back({.layers = group.layers,
                      .kv_heads = group.kv_heads,
                      .head_dim = group.head_dim,
                      .value_dim = group.value_dim,
                      .k = options.k,
                      .v = options.v,
                      .v_in_k = group.v_in_k && one_dense_type,
                      .page = options.page,
                      .tail = options.tail,
                      .sinks = options.sinks,
                      .window = group.window});
  }
  return groups;
}

}  // namespace rota::tool
