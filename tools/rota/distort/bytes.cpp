#include "distort/bytes.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <memory>
#include <utility>

namespace rota::tool {

bool Bytes::read_at(std::uint64_t offset, std::span<char> to) const {
  return offset <= size && to.size() <= size - offset && read(offset, to);
}

Result<Bytes> file_bytes(const std::filesystem::path& path, std::string_view wanted) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure)) return wrong("is not there or no file", wanted);
  const std::uint64_t size = std::filesystem::file_size(path, failure);
  if (failure) return wrong(failure.message(), wanted);
  const auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  if (!*file) return wrong("cannot be opened", "a file that may be read");
  if (size > static_cast<std::uint64_t>(std::numeric_limits<std::streamoff>::max()))
    return wrong("is too long", wanted);
  const auto read = [file](std::uint64_t offset, std::span<char> to) {
    file->clear();
    file->seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file->read(to.data(), static_cast<std::streamsize>(to.size())));
  };
  return Bytes{size, read};
}

Error wrong(std::string what, std::string_view wanted) {
  return {Errc::io, fmt::format("{}; wanted {}", std::move(what), wanted)};
}

Error named(std::string_view name, const Error& error) {
  return {error.code, fmt::format("{}: {}", name, error.message)};
}

std::uint64_t little_endian(std::span<const char> bytes) {
  std::uint64_t number = 0;
  for (std::size_t at = bytes.size(); at-- > 0;) number = number << 8U | static_cast<std::uint8_t>(bytes[at]);
  return number;
}

}  // namespace rota::tool
