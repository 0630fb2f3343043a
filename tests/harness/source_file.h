#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace rota::test {

// A file of the source tree, by its path there.
inline std::string read_text(const std::string& path) {
  std::ifstream file(std::string(ROTA_SOURCE_FOLDER) + "/" + path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_text(path)); }

// The f16 values of one of our own .npy files, whose headers are known to be sound.
inline std::vector<std::uint16_t> read_halves(const std::string& path) {
  const std::string bytes = read_text(path);
  const std::size_t header =
      10 + static_cast<unsigned char>(bytes.at(8)) + 256U * static_cast<unsigned char>(bytes.at(9));
  std::vector<std::uint16_t> values((bytes.size() - header) / 2);
  std::memcpy(values.data(), bytes.data() + header, values.size() * 2);
  return values;
}

}  // namespace rota::test
