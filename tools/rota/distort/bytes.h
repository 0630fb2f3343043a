#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "rota/result.h"

namespace rota::tool {

// Bytes from anywhere: a file, or memory in tests.
struct Bytes {
  std::uint64_t size = 0;
  // False if they cannot be read. The range lies within `size`.
  std::function<bool(std::uint64_t offset, std::span<char> to)> read{};

  // False also where the range does not lie within `size`.
  bool read_at(std::uint64_t offset, std::span<char> to) const;
};

// Errors say what is wrong, without the file's name; `wanted` is said of what is no file.
Result<Bytes> file_bytes(const std::filesystem::path& path, std::string_view wanted);

// What is wrong, and what was wanted; the file's name comes to it where it is known.
Error wrong(std::string what, std::string_view wanted);

Error named(std::string_view name, const Error& error);

// Of at most 8 bytes.
std::uint64_t little_endian(std::span<const char> bytes);

}  // namespace rota::tool
