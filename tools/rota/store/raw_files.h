#pragma once

#include <cstddef>
#include <span>
#include <string>

// What a folder's medium does without a store: files that are written whole, and read again.

namespace rota::tool {

class RawFiles {
 public:
  explicit RawFiles(const std::string& folder);  // has a folder of its own in it, until the end
  ~RawFiles();
  RawFiles(const RawFiles&) = delete;
  RawFiles& operator=(const RawFiles&) = delete;

  void write(std::size_t number, std::span<const std::byte> bytes) const;  // and fsync
  void read(std::size_t number, std::span<std::byte> to) const;

 private:
  std::string path_of(std::size_t number) const;

  std::string folder_;
};

}  // namespace rota::tool
