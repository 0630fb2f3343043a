#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distort/bytes.h"
#include "distort/npy.h"
#include "distort/zip.h"
#include "rota/result.h"

// Arrays in files, which may come from anywhere: nothing that they say of themselves is believed before it agrees with
// the file's size. Errors name the file.

namespace rota::tool {

// An array whose shape is known, and whose numbers are still in their file.
struct ArrayFile {
  std::string name{};  // of the file, for errors; of one in a .npz "capture.npz: layer0_k"
  std::filesystem::path path{};
  NpyHeader header{};
  std::optional<ZipEntry> entry{};  // of a .npz

  Result<Array> read() const;
};

Result<ArrayFile> open_npy(const std::filesystem::path& path);

// Bare numbers, little-endian. The file of the same name that ends in .json says what they are:
// {"dtype": "f16", "shape": [512, 64]}. dtype is f16, bf16, f32 or f64; other keys are for people.
Result<ArrayFile> open_raw(const std::filesystem::path& path);

struct NamedArray {
  std::string name;  // "layer0_k"
  ArrayFile array;
};

// Those of its arrays whose names are wanted; others may be anything.
Result<std::vector<NamedArray>> open_npz(const std::filesystem::path& path, bool (&wanted)(std::string_view name));

}  // namespace rota::tool
