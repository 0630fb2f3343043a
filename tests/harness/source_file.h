#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace rota::test {

// A JSON file of the source tree, by its path there.
inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(std::string(ROTA_SOURCE_FOLDER) + "/" + path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

}  // namespace rota::test
