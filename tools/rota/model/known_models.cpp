#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/command.h"
#include "cli/names.h"
#include "model/config_model.h"

namespace rota::tool {
namespace {

constexpr unsigned char kModelsJson[] = {
#include "models.inc"
};

LayerGroup group_of(const nlohmann::json& entry) {
  LayerGroup group{.layers = entry.contains("count") ? first_layers(entry.at("count").get<std::uint32_t>())
                                                     : entry.at("layers").get<std::vector<std::uint32_t>>(),
                   .query_heads = entry.at("query_heads").get<std::uint32_t>(),
                   .kv_heads = entry.at("kv_heads").get<std::uint32_t>(),
                   .head_dim = entry.at("head_dim").get<std::uint32_t>(),
                   .value_dim = entry.at("value_dim").get<std::uint32_t>()};
  if (entry.contains("window")) group.window = entry.at("window").get<std::uint64_t>();
  group.v_in_k = entry.value("v_in_k", false);
  return group;
}

std::vector<Model> parse_models() {
  // As characters: libc++ has no traits of unsigned ones.
  const std::string_view text(reinterpret_cast<const char*>(kModelsJson), sizeof kModelsJson);
  const auto json = nlohmann::json::parse(text);
  std::vector<Model> models;
  for (const auto& entry : json.at("models")) {
    Model& model = models.emplace_back();
    model.name = entry.at("name").get<std::string>();
    model.title = entry.at("title").get<std::string>();
    model.context = entry.at("context").get<std::uint64_t>();
    for (const auto& group : entry.at("groups")) model.groups.push_back(group_of(group));
    if (entry.contains("note")) model.notes.push_back(entry.at("note").get<std::string>());
  }
  return models;
}

[[noreturn]] void fail_for_name(const std::string& name) {
  std::vector<std::string> names;
  for (const Model& model : known_models()) names.push_back(model.name);
  const auto near = names_like(name, names);
  throw Failure(Exit::usage, fmt::format("there is no model \"{}\", and no such file{}", name, did_you_mean(near)),
                near.empty() ? "rota estimate --list-models" : "rota estimate -m " + near.front());
}

// The first part's name, if this is another's: "a-00002-of-00005.gguf".
std::string first_part(const std::string& path) {
  constexpr std::string_view kEnding = "-00002-of-00005.gguf";
  if (path.size() <= kEnding.size() || !path.ends_with(".gguf")) return {};
  const std::size_t at = path.size() - kEnding.size();
  if (path[at] != '-' || path.substr(at + 6, 4) != "-of-" || path.substr(at + 1, 5) == "00001") return {};
  return path.substr(0, at + 1) + "00001" + path.substr(at + 6);
}

// What to do where a file says too little.
constexpr const char* kByOptions =
    "rota estimate --layers 32 --kv-heads 8 --head-dim 128, with the model's own numbers";

Model model_of_config_at(const std::string& path) {
  auto model = read_config_file(path);
  std::error_code ignored;
  if (!model) {
    const bool there = std::filesystem::exists(path, ignored);
    throw Failure(Exit::failed_check, model.error().message, there ? kByOptions : "rota estimate --list-models");
  }
  model->name = path;
  return *std::move(model);
}

Model model_in(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(".json") || std::filesystem::is_directory(path, ignored)) return model_of_config_at(path);
  auto file = read_gguf_file(path);
  if (!file) {
    const std::string first = first_part(path);
    throw Failure(Exit::failed_check, file.error().message,
                  first.empty() ? "rota estimate --list-models" : "rota estimate -m " + first);
  }
  auto model = model_of(file->header);
  if (!model) {
    throw Failure(Exit::failed_check, fmt::format("{}: {}", path, model.error().message), kByOptions);
  }
  model->name = path;
  if (model->title.empty()) model->title = std::filesystem::path(path).stem().string();
  model->weights_bytes = file->weights_bytes;
  if (!file->weights_bytes) {
    model->notes.push_back(file->incomplete + ": how large the weights are is not known; --weights says it");
  }
  return *std::move(model);
}

}  // namespace

const std::vector<Model>& known_models() {
  static const std::vector<Model> models = parse_models();
  return models;
}

Model find_model(const std::string& name_or_path) {
  const auto& models = known_models();
  const auto found = std::ranges::find(models, lower(name_or_path), &Model::name);
  if (found != models.end()) return *found;
  std::error_code ignored;
  const bool is_path = name_or_path.ends_with(".gguf") || name_or_path.ends_with(".json") ||
                       std::filesystem::exists(name_or_path, ignored);
  // "Qwen/Qwen3-8B" is a name, too: its last part may be known.
  if (!is_path) fail_for_name(name_or_path.substr(name_or_path.rfind('/') + 1));
  return model_in(name_or_path);
}

}  // namespace rota::tool
