#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "rota/result.h"

namespace rota::tool {

// Numbers of a file, in C order. f32 holds each number of the other types exactly.
struct Array {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};

// "(512, 64)", as NumPy shows it.
std::string shape_text(std::span<const std::uint64_t> shape);

// Files may come from anywhere: nothing that they say of themselves is believed before it agrees with the file's size.
// Errors name the file.

// What numpy.save writes for an array of f16 or f32 numbers: version 1.0, '<f2' or '<f4'.
Result<Array> read_npy(const std::filesystem::path& path);

// Bare numbers, little-endian. The file of the same name that ends in .json says what they are:
// {"dtype": "f16", "shape": [512, 64]}. dtype is f16, bf16 or f32; other keys are for people.
Result<Array> read_raw(const std::filesystem::path& path);

}  // namespace rota::tool
