#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "model/config_json.h"
#include "model/config_model.h"

// A config.json on a disk, and what lies beside it.

namespace rota::tool {
namespace {

constexpr std::uint64_t kMostIndexBytes = std::uint64_t{64} << 20;  // names every tensor, so it may be long

Error wrong(const std::filesystem::path& path, std::string_view what) {
  return {Errc::io, fmt::format("{}: {}", path.string(), what)};
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t most_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return wrong(path, error ? error.message() : "is no file; wanted a config.json");
  }
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return wrong(path, error.message());
  if (bytes > most_bytes) {
    return wrong(path, fmt::format("is {} bytes long; wanted a config.json of at most {}", bytes, most_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return wrong(path, "cannot be opened; wanted a file that may be read");
  std::string text(bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return wrong(path, fmt::format("is truncated: it has {} bytes; wanted {}", file.gcount(), bytes));
  }
  return text;
}

struct Weights {
  std::optional<std::uint64_t> bytes{};
  std::string missing = "no safetensors lie beside it";
};

Weights find_weights(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path index = folder / "model.safetensors.index.json", one = folder / "model.safetensors";
  if (std::filesystem::is_regular_file(one, error)) {
    const std::uint64_t bytes = std::filesystem::file_size(one, error);
    if (!error) return {.bytes = bytes};
  }
  if (!std::filesystem::exists(index, error)) return {};
  const auto text = read_text(index, kMostIndexBytes);
  if (!text) return {.missing = text.error().message};
  const auto json = parse_config_json(*text);
  if (!json) return {.missing = fmt::format("{} {}", index.filename().string(), json.error().message)};
  const auto metadata = json->find("metadata");
  if (metadata != json->end() && metadata->is_object()) {
    const auto total = metadata->find("total_size");
    if (total != metadata->end() && total->is_number_unsigned()) return {.bytes = total->get<std::uint64_t>()};
  }
  return {.missing = index.filename().string() + " has no metadata.total_size"};
}

}  // namespace

Result<Model> read_config_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = is_folder ? path / "config.json" : path;
  if (is_folder && !std::filesystem::exists(file, error)) {
    return wrong(path, "is a folder without a config.json; wanted one with it, or a GGUF file");
  }
  const auto text = read_text(file, kMostConfigBytes);
  if (!text) return text.error();
  auto model = model_of_config(*text);
  if (!model) return wrong(file, model.error().message);
  const std::filesystem::path whole = std::filesystem::absolute(file, error).lexically_normal();
  const bool usual = whole.filename() == "config.json" && whole.parent_path().has_filename();
  model->title = (usual ? whole.parent_path().filename() : whole.stem()).string();
  const Weights weights = find_weights(file.parent_path());
  model->weights_bytes = weights.bytes;
  if (!weights.bytes) {
    model->notes.push_back(weights.missing + ": how large the weights are is not known; --weights says it");
  }
  return model;
}

}  // namespace rota::tool
