#include "bench/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/fields.h"
#include "cli/command.h"
#include "rota/view.h"

namespace rota::tool {
namespace {

const std::vector<std::uint64_t> kUsualKeys{4096, 16384};

// What layers of a model have, or what options say instead.
struct Geometry {
  std::uint64_t kv_heads, group, head_dim, value_dim;
  std::optional<std::uint64_t> window = {};

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

struct Layers {
  Geometry geometry;
  std::optional<std::uint64_t> count = {};  // of a model
};

CodecLists usual_codecs(const std::string& op) {
  if (op == "attend") return {{"f16", "turbo8", "turbo4"}, {"f16", "turbo8", "turbo4"}};
  if (op == "seal") return {{"turbo8", "turbo4"}, {"turbo8", "turbo4"}};
  return {{"f16"}, {"f16"}};
}

// Numbers so large that products of them do not fit are refused before they are multiplied.
void check_size(const BenchShape& shape) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 45;
  std::uint64_t product = std::min(shape.head_dim, shape.value_dim) == 0 ? 0 : 8;
  for (const std::uint64_t factor : {shape.keys, shape.sequences, shape.kv_heads, shape.group, shape.rows,
                                     std::max(shape.head_dim, shape.value_dim)}) {
    product = detail::saturating_multiply(product, factor);
  }
  if (product == 0) throw Failure(Exit::usage, "a size is 0; wanted 1 or more", "rota bench --help");
  if (product > kMost || shape.rotated_bytes > kMost) {
    throw Failure(Exit::usage, "these sizes together are more than any memory holds", "rota estimate --help");
  }
}

// Each geometry once. Only attention sees windows: to other ops, layers with and without one are alike.
std::vector<Layers> layers_of(const Model& model, const std::string& op) {
  std::vector<Layers> kinds;
  for (const LayerGroup& group : model.groups) {
    const Geometry geometry{.kv_heads = group.kv_heads,
                            .group = group.query_heads / group.kv_heads,
                            .head_dim = group.head_dim,
                            .value_dim = group.value_dim,
                            .window = op == "attend" ? group.window : std::nullopt};
    auto found = std::ranges::find(kinds, geometry, &Layers::geometry);
    if (found == kinds.end()) found = kinds.insert(found, {geometry});
    found->count = found->count.value_or(0) + group.layers.size();
  }
  return kinds;
}

Layers layers_of(const BenchOptions& options) {
  const std::uint64_t head_dim = options.head_dim.value_or(128);
  return {{.kv_heads = options.kv_heads.value_or(8),
           .group = options.group.value_or(4),
           .head_dim = head_dim,
           .value_dim = options.value_dim.value_or(head_dim),
           .window = options.window}};
}

std::vector<CodecPair> pairs_of(const BenchOptions& options) {
  CodecLists lists = options.codecs;
  if (lists.k.empty() && lists.v.empty()) lists = usual_codecs(options.op);
  if (lists.k.empty()) lists.k = lists.v;
  if (lists.v.empty()) lists.v = lists.k;
  std::vector<CodecPair> pairs = lists.pairs();
  const bool has_baseline = std::ranges::find(kBenchOps, options.op) != kBenchOps.end() && options.op != "seal";
  if (has_baseline && std::ranges::none_of(pairs, is_f16)) pairs.insert(pairs.begin(), {DType::f16, DType::f16});
  return pairs;
}

// On the first device.
std::vector<BenchCase> cases_of(const BenchOptions& options, const Layers& layers) {
  std::vector<BenchCase> cases;
  for (const std::uint64_t sequences : options.sequences) {
    for (const std::uint64_t rows : options.rows) {
      for (const std::uint64_t keys : options.keys.empty() ? kUsualKeys : options.keys) {
        for (const CodecPair& pair : pairs_of(options)) {
          const BenchShape shape{
              .k = pair.k,
              .v = pair.v,
              .kv_heads = layers.geometry.kv_heads,
              .group = layers.geometry.group,
              .head_dim = layers.geometry.head_dim,
              .value_dim = layers.geometry.value_dim,
              .keys = keys,
              .rows = rows,
              .sequences = sequences,
              .tail = options.tail,
              .window = layers.geometry.window,
              .scattered = options.pages == "scattered",
              .rotated_bytes = detail::saturating_multiply(options.rotate_mib.value_or(512), 1U << 20)};
          check_size(shape);
          cases.push_back({.shape = shape, .layers = layers.count});
        }
      }
    }
  }
  return cases;
}

}  // namespace

bool is_f16(const CodecPair& pair) { return pair.k == KvCodec(DType::f16) && pair.v == KvCodec(DType::f16); }

std::optional<Model> named_model(const BenchOptions& options) {
  if (options.model.empty()) return {};
  if (options.kv_heads || options.group || options.head_dim || options.value_dim || options.window) {
    throw Failure(Exit::usage,
                  "--model has its own heads and windows; wanted it alone, or --kv-heads, --group, --head-dim, "
                  "--value-dim and --window without it",
                  fmt::format("rota bench {} --model {}", options.op, options.model));
  }
  try {
    return find_model(options.model);
  } catch (const Failure& failure) {  // what it advises to try is for rota estimate
    throw Failure(failure.exit(), failure.what(), "rota estimate --list-models");
  }
}

std::vector<BenchCase> bench_cases(const BenchOptions& options, const std::optional<Model>& model,
                                   std::size_t devices) {
  const std::vector<Layers> kinds = model ? layers_of(*model, options.op) : std::vector{layers_of(options)};
  std::vector<BenchCase> cases;
  for (std::size_t device = 0; device < devices; ++device) {
    for (const Layers& layers : kinds) {
      for (BenchCase& one : cases_of(options, layers)) {
        one.device = device;
        cases.push_back(one);
      }
    }
  }
  return cases;
}

std::vector<BenchShape> call_shapes(const BenchOptions& options) {
  std::vector<BenchShape> shapes;
  for (const BenchCase& one : cases_of(options, layers_of(options))) shapes.push_back(one.shape);
  return shapes;
}

}  // namespace rota::tool
