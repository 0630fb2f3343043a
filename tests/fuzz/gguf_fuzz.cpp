#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>

#include "harness/memory_bytes.h"
#include "model/model.h"
#include "rota/kv_spec.h"

// A GGUF file from anywhere: to its header, to the shape of a cache, and to what that cache takes.

namespace {

using namespace rota;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_shape(const tool::Model& model) {
  std::set<std::uint32_t> seen;
  require(!model.groups.empty() && model.layers() <= tool::kMostModelLayers);
  for (const tool::LayerGroup& group : model.groups) {
    require(!group.layers.empty() && group.kv_heads > 0 && group.query_heads % group.kv_heads == 0);
    require(group.head_dim > 0 && group.value_dim > 0 && (!group.window || *group.window > 0));
    for (const std::uint32_t layer : group.layers) require(seen.insert(layer).second);
  }
}

void check_estimate(const tool::Model& model, const KvCodec& codec) {
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::MemoryBytes source(std::as_bytes(std::span(data, size)));
  const auto header = tool::read_gguf(source);
  if (!header) {
    require(header.error().code == Errc::io && !header.error().message.empty());
    return 0;
  }
  const auto model = tool::model_of(*header);
  if (!model) return 0;
  check_shape(*model);
  check_estimate(*model, DType::f16);
  check_estimate(*model, turbo(4));
  return 0;
}
