#include "c/convert.h"

// The description of a cache.

namespace rota::c {
namespace {

static_assert(static_cast<std::uint32_t>(LayerOrder::in_turn) == ROTA_LAYERS_IN_TURN &&
              static_cast<std::uint32_t>(LayerOrder::together) == ROTA_LAYERS_TOGETHER);

// The defaults of C are those of C++.
constexpr bool same_group_defaults() {
  const rota_kv_group c = ROTA_KV_GROUP_INIT;
  const KvGroup group{.layers = {}, .kv_heads = 0, .head_dim = 0};
  return group.k == KvCodec(DType::f16) && std::string_view(c.k) == "f16" && group.v == KvCodec(DType::f16) &&
         std::string_view(c.v) == "f16" && !group.value_dim && c.value_dim == 0 && !group.v_in_k && c.v_in_k == 0 &&
         static_cast<std::uint32_t>(group.dense) == c.dense && group.page == c.page && group.tail == c.tail &&
         group.sinks == c.sinks && !group.window && c.window == 0 && !group.keep_sinks && c.keep_sinks == 0;
}
static_assert(same_group_defaults());

constexpr bool same_spec_defaults() {
  const rota_kv_cache_spec c = ROTA_KV_CACHE_SPEC_INIT;
  const KvCacheSpec spec{.groups = {}};
  return !spec.max_tokens && c.max_tokens == 0 && !spec.max_bytes && c.max_bytes == 0 && !spec.at_once &&
         c.at_once == 0 && spec.max_sequences == c.max_sequences && spec.max_step_tokens == c.max_step_tokens &&
         static_cast<std::uint32_t>(spec.layer_order) == c.layer_order && !spec.seal_within && c.seal_within == 0;
}
static_assert(same_spec_defaults());

Status kv_codec_of(const Where& where, const char* name, const Where& of_options, const rota_codec_options* options,
                   KvCodec& to) {
  if (Status status = check_given(where, name); !status) return status;
  auto named = codec_named(name);
  if (!named) return Error{named.error().code, where.text() + ": " + named.error().message};
  to = *named;
  if (options == nullptr) return {};
  auto sealed = sealed_codec(to);
  if (!sealed) return refuse(of_options, "given", joined({"NULL: ", name, " has no options"}));
  rota_codec_options taken;
  if (Status status = take(of_options, options, taken); !status) return status;
  if (Status status = take_options(of_options, taken, *sealed); !status) return status;
  to = kv_codec(*sealed);
  return {};
}

Status group_of(const Where& where, const rota_kv_group& from, std::vector<KvGroup>& to) {
  KvGroup group{.layers = {}, .kv_heads = from.kv_heads, .head_dim = from.head_dim};
  const auto layers = list_of(where.in("layers"), from.layers, from.layer_count);
  if (!layers) return layers.error();
  group.layers.assign(layers->begin(), layers->end());
  group.value_dim = if_not_zero(from.value_dim);
  if (Status status = kv_codec_of(where.in("k"), from.k, where.in("k_options"), from.k_options, group.k); !status) {
    return status;
  }
  if (Status status = kv_codec_of(where.in("v"), from.v, where.in("v_options"), from.v_options, group.v); !status) {
    return status;
  }
  if (Status status = choose(where.in("dense"), from.dense, kDTypes.size(), group.dense); !status) return status;
  if (Status status = choose(where.in("v_in_k"), from.v_in_k, group.v_in_k); !status) return status;
  if (Status status = choose(where.in("keep_sinks"), from.keep_sinks, group.keep_sinks); !status) return status;
  if (from.page > std::numeric_limits<std::uint32_t>::max()) {
    return refuse(where.in("page"), std::to_string(from.page), "128 or 64");
  }
  group.page = static_cast<std::uint32_t>(from.page);
  group.tail = from.tail;
  group.sinks = from.sinks;
  group.window = if_not_zero(from.window);
  const auto shared = list_of(where.in("shared"), from.shared, from.shared_count);
  if (!shared) return shared.error();
  for (const rota_kv_shared_layer& one : shared.value()) group.shared.push_back({.layer = one.layer, .from = one.from});
  to.push_back(std::move(group));
  return {};
}

}  // namespace

Result<KvCacheSpec> spec_of(const Where& where, const rota_kv_cache_spec* from) {
  rota_kv_cache_spec taken;
  if (Status status = take(where, from, taken); !status) return status.error();
  KvCacheSpec spec{.groups = {}};
  Status groups =
      each(where.in("groups"), taken.groups, taken.group_count,
           [&](const Where& here, const rota_kv_group& group) { return group_of(here, group, spec.groups); });
  if (!groups) return groups.error();
  spec.max_tokens = if_not_zero(taken.max_tokens);
  spec.max_bytes = if_not_zero(taken.max_bytes);
  if (Status status = choose(where.in("at_once"), taken.at_once, spec.at_once); !status) return status.error();
  spec.max_sequences = taken.max_sequences;
  spec.max_step_tokens = taken.max_step_tokens;
  if (Status status = choose(where.in("layer_order"), taken.layer_order, 2, spec.layer_order); !status) {
    return status.error();
  }
  spec.seal_within = if_not_zero(taken.seal_within);
  return spec;
}

void c_group(const KvGroup& from, GroupOfSaved& to) {
  rota_kv_group& group = to.group;
  group.layers = from.layers.data();
  group.layer_count = from.layers.size();
  group.kv_heads = from.kv_heads;
  group.head_dim = from.head_dim;
  group.value_dim = from.value_dim.value_or(0);
  group.k = name(from.k).data();
  group.v = name(from.v).data();
  if (const auto sealed = sealed_codec(from.k)) {
    put_options(*sealed, to.k);
    group.k_options = &to.k;
  }
  if (const auto sealed = sealed_codec(from.v)) {
    put_options(*sealed, to.v);
    group.v_options = &to.v;
  }
  group.v_in_k = from.v_in_k ? 1 : 0;
  group.dense = static_cast<rota_dtype>(from.dense);
  group.page = from.page;
  group.tail = from.tail;
  group.sinks = from.sinks;
  group.window = from.window.value_or(0);
  group.keep_sinks = from.keep_sinks ? 1 : 0;
  for (const KvSharedLayer& one : from.shared) to.shared.push_back({one.layer, one.from});
  group.shared = to.shared.empty() ? nullptr : to.shared.data();
  group.shared_count = to.shared.size();
}

}  // namespace rota::c
