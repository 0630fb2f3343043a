#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rota/result.h"

// The head of a GGUF file: what it says of the model's shape. Weights and vocabulary are passed over, not read.

namespace rota::tool {

// Bytes from anywhere.
class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  virtual std::uint64_t size_bytes() const noexcept = 0;
  // False if they cannot be read. The range lies within size_bytes().
  virtual bool read(std::uint64_t offset, std::span<std::byte> to) = 0;
};

struct GgufHeader {
  std::uint32_t version = 0;
  std::uint64_t tensors = 0;
  std::string architecture{};  // empty in later parts of a split model
  std::string name{};
  std::map<std::string, std::uint64_t, std::less<>> numbers{};  // by their keys, without the architecture
  std::map<std::string, std::vector<std::uint64_t>, std::less<>> arrays{};
  std::uint64_t part = 0, parts = 1;  // of a model that is split; the first part, 0, has the metadata
  bool holds_tensors = false;         // the data of all its tensors begins within the file

  std::optional<std::uint64_t> number(std::string_view key) const;
};

inline constexpr std::uint64_t kMostModelLayers = 1024;

// Little-endian files of version 2 and 3. Nothing that the file says is believed before it agrees with the file's size:
// every count is held in 64 bits against what is left. Errors are of Errc::io and name the byte.
Result<GgufHeader> read_gguf(ByteSource& source);

struct GgufFile {
  GgufHeader header;
  std::optional<std::uint64_t> weights_bytes{};  // of all parts; nothing if some are missing or cut short
  std::string incomplete{};                      // why there are no weights_bytes
};

// Any part of a split model may be named only if it is the first. Errors name the file.
Result<GgufFile> read_gguf_file(const std::filesystem::path& path);

}  // namespace rota::tool
