#include "specs.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "arrays.h"
#include "bind.h"

namespace rota::python {
namespace {

using nb::literals::operator""_a;

constexpr std::pair<std::string_view, LayerOrder> kLayerOrders[] = {{"in_turn", LayerOrder::in_turn},
                                                                    {"together", LayerOrder::together}};

constexpr const char* kGroupDoc = R"(Layers that are stored alike.

`layers` are the model's numbers, or a count; `k` and `v` are codecs; `dense` is the type of the newest `tail` tokens and
of the first `sinks`, which are not sealed. `window` is the number of newest keys that a token sees, its own included.
`shared` says which layers have no cache of their own: {layer: layer whose cache it sees}.

>>> import rota
>>> rota.KvGroup(layers=2, kv_heads=8, head_dim=128, k="turbo4", v="turbo4").layers
[0, 1]
)";

constexpr const char* kEstimateDoc = R"(The most that a cache allocates, in bytes. Needs no device.

>>> import rota
>>> llama = rota.KvGroup(32, 8, 128, k="turbo4", v="turbo4")
>>> rota.estimate([llama], max_tokens=8192)["bytes"] < 400 * 2**20
True
)";

std::vector<std::uint32_t> layers_of(const nb::object& layers) {
  std::uint32_t count = 0;
  std::vector<std::uint32_t> numbers;
  if (nb::try_cast(layers, count)) return first_layers(count);
  if (!nb::try_cast(layers, numbers)) throw nb::type_error("layers: wanted a count, or a list of numbers from 0 on");
  return numbers;
}

// Keywords of KvGroup besides its shape.
struct GroupOptions {
  nb::object k, v;
  std::string_view dense;
  std::uint32_t page;
  std::uint64_t tail, sinks;
  std::optional<std::uint64_t> window;
  bool keep_sinks, v_in_k;
  nb::dict shared;
};

KvGroup make_group(const nb::object& layers, std::uint32_t kv_heads, std::uint32_t head_dim,
                   const GroupOptions& options) {
  KvGroup group{.layers = layers_of(layers), .kv_heads = kv_heads, .head_dim = head_dim};
  group.k = codec_of(options.k);
  group.v = codec_of(options.v);
  group.dense = dtype_named(options.dense, "dense");
  group.page = options.page;
  group.tail = options.tail;
  group.sinks = options.sinks;
  group.window = options.window;
  group.keep_sinks = options.keep_sinks;
  group.v_in_k = options.v_in_k;
  for (const auto [key, value] : options.shared) {
    std::uint32_t layer = 0;
    std::uint32_t from = 0;
    if (!nb::try_cast(key, layer) || !nb::try_cast(value, from)) throw nb::type_error("shared: wanted {layer: layer}");
    group.shared.push_back({.layer = layer, .from = from});
  }
  return group;
}

std::string to_text(const KvGroup& group) {
  return "rota.KvGroup(" + std::to_string(group.layers.size()) + " layers, " + std::to_string(group.kv_heads) + " x " +
         std::to_string(group.head_dim) + ", k=" + std::string(name(group.k)) + ", v=" + std::string(name(group.v)) +
         (group.window ? ", window=" + std::to_string(*group.window) : "") + ")";
}

nb::dict to_dict(const KvSideMemory& memory) {
  nb::dict dict;
  dict["sealed"] = memory.sealed.bytes();
  dict["dense"] = memory.dense.bytes();
  dict["sinks"] = memory.sinks.bytes();
  dict["step"] = memory.step.bytes();
  return dict;
}

}  // namespace

KvCacheSpec spec_of(std::vector<KvGroup> groups, const CacheLimits& limits) {
  return {.groups = std::move(groups),
          .max_tokens = limits.max_tokens,
          .max_bytes = limits.max_bytes,
          .at_once = limits.at_once,
          .max_sequences = limits.max_sequences,
          .max_step_tokens = limits.max_step_tokens,
          .layer_order = named<LayerOrder>(kLayerOrders, limits.layer_order, "layer_order"),
          .seal_within = limits.seal_within};
}

nb::dict to_dict(const KvMemory& memory) {
  nb::dict dict;
  dict["bytes"] = memory.bytes();
  dict["max_tokens"] = memory.max_tokens;
  dict["host_bytes"] = memory.host_bytes;
  nb::list groups;
  for (const KvGroupMemory& group : memory.groups) {
    nb::dict one;
    one["k"] = to_dict(group.k);
    one["v"] = to_dict(group.v);
    groups.append(one);
  }
  dict["groups"] = groups;
  return dict;
}

void bind_specs(nb::module_& module) {
  nb::class_<KvGroup>(module, "KvGroup", kGroupDoc)
      .def(
          "__init__",
          [](KvGroup* self, const nb::object& layers, std::uint32_t kv_heads, std::uint32_t head_dim,
             std::optional<std::uint32_t> value_dim, const nb::object& k, const nb::object& v, std::string_view dense,
             std::uint32_t page, std::uint64_t tail, std::uint64_t sinks, std::optional<std::uint64_t> window,
             bool keep_sinks, bool v_in_k, const nb::dict& shared) {
            new (self) KvGroup(make_group(layers, kv_heads, head_dim,
                                          {k, v, dense, page, tail, sinks, window, keep_sinks, v_in_k, shared}));
            self->value_dim = value_dim;
          },
          "layers"_a, "kv_heads"_a, "head_dim"_a, nb::kw_only(), "value_dim"_a = nb::none(), "k"_a = "f16",
          "v"_a = "f16", "dense"_a = "f16", "page"_a = 128, "tail"_a = 128, "sinks"_a = 4, "window"_a = nb::none(),
          "keep_sinks"_a = false, "v_in_k"_a = false, "shared"_a = nb::dict())
      .def_ro("layers", &KvGroup::layers)
      .def_prop_ro("kv_heads", [](const KvGroup& group) { return std::uint32_t{group.kv_heads}; })
      .def_prop_ro("head_dim", [](const KvGroup& group) { return std::uint32_t{group.head_dim}; })
      .def_prop_ro("value_dim", [](const KvGroup& group) { return group.value_dim.value_or(group.head_dim); })
      .def_prop_ro("k", [](const KvGroup& group) { return python_codec(group.k); })
      .def_prop_ro("v", [](const KvGroup& group) { return python_codec(group.v); })
      .def_prop_ro("dense", [](const KvGroup& group) { return info(group.dense).name; })
      .def_ro("page", &KvGroup::page)
      .def_ro("tail", &KvGroup::tail)
      .def_ro("sinks", &KvGroup::sinks)
      .def_ro("window", &KvGroup::window)
      .def_ro("keep_sinks", &KvGroup::keep_sinks)
      .def_ro("v_in_k", &KvGroup::v_in_k)
      .def("__repr__", &to_text);
  module.def(
      "estimate",
      [](std::vector<KvGroup> groups, std::optional<std::uint64_t> max_tokens, std::optional<std::uint64_t> max_bytes,
         std::uint32_t max_sequences, std::uint64_t max_step_tokens, std::string_view layer_order,
         std::optional<std::uint64_t> seal_within) {
        return to_dict(estimate(spec_of(std::move(groups), {max_tokens, max_bytes, false, max_sequences,
                                                            max_step_tokens, layer_order, seal_within}))
                           .value());
      },
      "groups"_a, nb::kw_only(), "max_tokens"_a = nb::none(), "max_bytes"_a = nb::none(), "max_sequences"_a = 1,
      "max_step_tokens"_a = 512, "layer_order"_a = "in_turn", "seal_within"_a = nb::none(), kEstimateDoc);
}

}  // namespace rota::python
