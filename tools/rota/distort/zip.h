#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distort/bytes.h"
#include "rota/result.h"

// What numpy.savez writes: a zip file of arrays, as they are or deflated. Only what that needs of zip is known.

namespace rota::tool {

struct ZipEntry {
  std::string name{};
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t stored_bytes = 0, bytes = 0;  // in the file, and when it is inflated
  std::uint64_t offset = 0;                   // of the stored bytes; all of them lie within the file
};

// All entries, in the directory's order. No two have one name, and no name commands a terminal.
Result<std::vector<ZipEntry>> read_zip_directory(const Bytes& file);

// The entry's first bytes, at most `most`. Nothing but all of them is held against the checksum.
Result<std::vector<char>> read_zip_entry(const Bytes& file, const ZipEntry& entry, std::uint64_t most);

}  // namespace rota::tool
