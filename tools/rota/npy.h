#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "rota/result.h"

namespace rota::tool {

// An array of f16 numbers, in C order.
struct HalfArray {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint16_t> values;
};

// "(512, 64)", as NumPy shows it.
std::string shape_text(std::span<const std::uint64_t> shape);

// Reads what numpy.save writes for such an array: version 1.0, '<f2'. The file may come from anywhere: nothing that
// its header says is believed before it agrees with the file's size. Errors name the file.
Result<HalfArray> read_npy(const std::filesystem::path& path);

}  // namespace rota::tool
