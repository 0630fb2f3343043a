#include "distort/npz.h"

#include <span>

namespace rota::tool {

Result<NpyHeader> npz_header(const Bytes& file, const ZipEntry& entry) {
  const auto head = read_zip_entry(file, entry, kLongestNpyHeader);
  if (!head) return head.error();
  return parse_npy_header(*head, entry.bytes);
}

Result<Array> read_npz_array(const Bytes& file, const ZipEntry& entry, const NpyHeader& header) {
  const auto bytes = read_zip_entry(file, entry, entry.bytes);
  if (!bytes) return bytes.error();
  return array_of(header, std::span(*bytes).subspan(header.data_offset));
}

}  // namespace rota::tool
