#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "distort/npz.h"

// A file of numpy.save or numpy.savez from anywhere: to its arrays' shapes, and to their numbers.

namespace {

using namespace rota;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(const Error& error) { require(error.code == Errc::io && !error.message.empty()); }

void check_array(const tool::Bytes& file, const tool::ZipEntry& entry) {
  // The test's memory, not the reader's, is what ends where a megabyte of zeros is deflated to a kilobyte.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;
  const auto header = tool::npz_header(file, entry);
  if (!header) return check_error(header.error());
  if (entry.bytes > kMost) return;
  const auto array = tool::read_npz_array(file, entry, *header);
  if (!array) return check_error(array.error());
  require(array->values.size() == (entry.bytes - header->data_offset) / tool::bytes_of(header->type));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read = [&](std::uint64_t offset, std::span<char> to) {
    require(offset <= size && to.size() <= size - offset);
    if (!to.empty()) std::memcpy(to.data(), data + offset, to.size());
    return true;
  };
  const tool::Bytes file{size, read};
  const std::span bytes(reinterpret_cast<const char*>(data), size);
  const auto header = tool::parse_npy_header(bytes, size);
  if (header) {
    const auto array = tool::array_of(*header, bytes.subspan(header->data_offset));
    if (!array) check_error(array.error());
  } else {
    check_error(header.error());
  }
  const auto entries = tool::read_zip_directory(file);
  if (!entries) {
    check_error(entries.error());
    return 0;
  }
  for (const tool::ZipEntry& entry : *entries) check_array(file, entry);
  return 0;
}
