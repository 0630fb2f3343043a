#pragma once

#include <filesystem>
#include <string_view>

#include "model/model.h"

// Hugging Face's config.json as a model.

namespace rota::tool {

// From the text of a config.json to the shape of a cache, as transformers reads it. What the file does not say is taken
// from the model type's defaults, or as what takes most memory; each such assumption is in the notes. Errors are of
// Errc::io.
Result<Model> model_of_config(std::string_view text);

// A config.json, or a folder that has one. The size of weights is that of the safetensors beside it. Errors name the
// file.
Result<Model> read_config_file(const std::filesystem::path& path);

}  // namespace rota::tool
