#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distort/bytes.h"
#include "rota/result.h"

// What numpy.save writes, and the numbers in it.

namespace rota::tool {

enum class NumberType { f16, bf16, f32, f64 };

std::uint64_t bytes_of(NumberType type);

// As files say it.
struct NamedType {
  std::string_view name;
  NumberType type;
};

struct NpyHeader {
  NumberType type = NumberType::f16;
  std::vector<std::uint64_t> shape{};
  std::uint64_t data_offset = 0;
};

inline constexpr std::uint64_t kLongestNpyHeader = 65536 + 12;  // with what precedes its dictionary

// Of versions 1.0, 2.0 and 3.0, in C order: '<f2', '<f4', '<f8', and bf16, which ml_dtypes leaves as '<V2'. `head` is
// the file's beginning, at least kLongestNpyHeader bytes where the file has them. That the numbers fill the rest of
// `file_bytes` is checked.
Result<NpyHeader> parse_npy_header(std::span<const char> head, std::uint64_t file_bytes);

// "(512, 64)", as NumPy shows it.
std::string shape_text(std::span<const std::uint64_t> shape);

// Fails unless so many bytes are what the shape has. `before` is of the sentence "9 bytes follow the header".
Status check_bytes(const NpyHeader& array, std::uint64_t bytes, std::string_view before);

// Numbers of a file, in C order. f32 holds each number of the smaller types exactly.
struct Array {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
  std::uint64_t rounded = 0;  // of f64, to f32
};

// Fails where a number is finite, and none of f32.
Result<Array> array_of(const NpyHeader& header, std::span<const char> bytes);

}  // namespace rota::tool
