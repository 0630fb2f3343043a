#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "rota/kv_spec.h"
#include "rota/result.h"

// What commands know of a model: the shape of its cache.

namespace rota::tool {

// Layers that are alike.
struct LayerGroup {
  std::vector<std::uint32_t> layers;  // the model's own numbers
  std::uint32_t query_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  std::optional<std::uint64_t> window = {};  // else every token is seen
  bool v_in_k = false;                       // MLA: a value is the first numbers of its key

  // "full attention, 8 x 128", "window 1024, 4 x 256"
  std::string kind() const;
};

struct Model {
  std::string name{}, title{};
  std::optional<std::uint64_t> context{};  // the longest text that it was made for
  std::vector<LayerGroup> groups{};
  std::optional<std::uint64_t> weights_bytes{};  // of a file that is here whole
  std::vector<std::string> notes{};              // what was assumed, and what is not counted

  std::uint64_t layers() const noexcept;
};

// The models of data/models.json, sorted by name.
const std::vector<Model>& known_models();

// Where the file is silent, what takes most memory is assumed; each such assumption is in the notes.
Result<Model> model_of(const GgufHeader& header);

// A name of known_models(), or a path to a GGUF file, to a config.json or to a folder that has one. An unknown name
// fails with those that are spelled alike.
Model find_model(const std::string& name_or_path);

// How a cache keeps what the model's layers give it.
struct CacheOptions {
  KvCodec k = DType::f16, v = DType::f16;
  std::uint32_t page = 128;
  std::uint64_t tail = 128, sinks = 4;
};

// To the group of layers that are alike, or to a new one. `like` has no layers.
void add_layer(Model& model, LayerGroup like, std::uint32_t layer);

std::vector<KvGroup> groups_of(const Model& model, const CacheOptions& options);

}  // namespace rota::tool
