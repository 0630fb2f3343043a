#include "distort/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#if ROTA_HAS_ZLIB
#include <zlib.h>
#endif

#include "rota/view.h"

namespace rota::tool {
namespace {

constexpr std::string_view kEndMagic{"PK\5\6", 4}, kEnd64Magic{"PK\6\6", 4}, kLocator64Magic{"PK\6\7", 4},
    kEntryMagic{"PK\1\2", 4}, kLocalMagic{"PK\3\4", 4};
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr std::uint64_t kLongestComment = 65535, kLongestName = 255;
constexpr std::uint64_t kIn64Bits = 0xffffffff;  // where a field of 32 bits has it, the number is elsewhere, in 64
constexpr std::uint64_t kMostInflated = 1032;    // times: deflate gets no further
constexpr std::uint64_t kStored = 0, kDeflated = 8;

Error no_zip(std::string what) { return wrong(std::move(what), "a file of numpy.savez"); }

std::uint64_t field(std::span<const char> record, std::size_t offset, std::size_t bytes) {
  return little_endian(record.subspan(offset, bytes));
}

bool begins_with(std::span<const char> bytes, std::string_view magic) {
  return std::string_view(bytes.data(), bytes.size()).starts_with(magic);
}

struct Directory {
  std::uint64_t offset = 0, bytes = 0, entries = 0;
};

// The directory's place as a file beyond 4 GiB, or of more than 65,535 entries, has it.
Result<Directory> read_end64(const Bytes& file, std::uint64_t end) {
  std::array<char, kLocator64Bytes> locator{};
  std::array<char, kEnd64Bytes> record{};
  if (end < kLocator64Bytes || !file.read_at(end - kLocator64Bytes, locator) ||
      !begins_with(locator, kLocator64Magic) || !file.read_at(field(locator, 8, 8), record) ||
      !begins_with(record, kEnd64Magic)) {
    return no_zip("the zip directory has no 64-bit end");
  }
  return Directory{field(record, 48, 8), field(record, 40, 8), field(record, 32, 8)};
}

Result<Directory> read_end(const Bytes& file) {
  const std::uint64_t tail_bytes = std::min(file.size, kEndBytes + kLongestComment);
  std::vector<char> tail(tail_bytes);
  if (tail_bytes < kEndBytes || !file.read_at(file.size - tail_bytes, tail)) return no_zip("is no zip file");
  for (std::uint64_t at = tail_bytes - kEndBytes + 1; at-- > 0;) {
    const std::span record = std::span<const char>(tail).subspan(at, kEndBytes);
    if (!begins_with(record, kEndMagic) || field(record, 20, 2) != tail_bytes - at - kEndBytes) continue;
    Directory found{field(record, 16, 4), field(record, 12, 4), field(record, 10, 2)};
    const std::uint64_t end = file.size - tail_bytes + at;
    if (found.offset == kIn64Bits || found.bytes == kIn64Bits || found.entries == 0xffff) {
      const auto large = read_end64(file, end);
      if (!large) return large.error();
      found = *large;
    }
    if (found.offset > end || found.bytes > end - found.offset || found.entries > found.bytes / kEntryBytes) {
      return no_zip("the zip directory does not lie within the file");
    }
    return found;
  }
  return no_zip("is no zip file");
}

// The extra field's 64-bit numbers, for those that 32 bits do not hold, in this order.
Status take_64_bits(std::span<const char> extra, std::span<std::uint64_t* const> numbers) {
  constexpr std::size_t kHeadBytes = 4;
  std::span<const char> rest{};
  while (extra.size() >= kHeadBytes) {
    const std::uint64_t bytes = field(extra, 2, 2);
    if (bytes > extra.size() - kHeadBytes) return no_zip("an extra field of the zip directory is too long");
    if (field(extra, 0, 2) == 1) rest = extra.subspan(kHeadBytes, bytes);
    extra = extra.subspan(kHeadBytes + bytes);
  }
  for (std::uint64_t* const number : numbers) {
    if (*number != kIn64Bits) continue;
    if (rest.size() < 8) return no_zip("a 64-bit size is missing in the zip directory");
    *number = field(rest, 0, 8);
    rest = rest.subspan(8);
  }
  return {};
}

Status check_name(std::string_view name) {
  const auto bad = [](char character) { return static_cast<std::uint8_t>(character) < ' ' || character == '\x7f'; };
  if (name.empty() || name.size() > kLongestName || std::ranges::any_of(name, bad)) {
    return no_zip("the name of an entry is empty, too long or has control characters");
  }
  return {};
}

// Where the entry's bytes begin, which only its own header tells.
Status find_bytes(const Bytes& file, ZipEntry& entry) {
  std::array<char, kLocalBytes> local{};
  if (!file.read_at(entry.offset, local) || !begins_with(local, kLocalMagic)) {
    return no_zip(fmt::format("{} does not begin where the directory says", entry.name));
  }
  const std::uint64_t before = kLocalBytes + field(local, 26, 2) + field(local, 28, 2);
  if (before > file.size - entry.offset || entry.stored_bytes > file.size - entry.offset - before) {
    return no_zip(fmt::format("{} does not end within the file", entry.name));
  }
  entry.offset += before;
  return {};
}

Status check_sizes(const ZipEntry& entry) {
  const std::uint64_t most = detail::saturating_multiply(entry.stored_bytes, kMostInflated);
  if (entry.deflated ? entry.bytes <= most : entry.bytes == entry.stored_bytes) return {};
  return no_zip(fmt::format("{} has {} bytes in {}", entry.name, entry.bytes, entry.stored_bytes));
}

// One entry of the directory, and how many bytes it takes there.
Result<ZipEntry> read_entry(std::span<const char> directory, std::uint64_t& taken_bytes) {
  if (directory.size() < kEntryBytes || !begins_with(directory, kEntryMagic)) {
    return no_zip("the zip directory ends too early");
  }
  const std::uint64_t name_bytes = field(directory, 28, 2), extra_bytes = field(directory, 30, 2);
  taken_bytes = kEntryBytes + name_bytes + extra_bytes + field(directory, 32, 2);
  if (taken_bytes > directory.size()) return no_zip("the zip directory ends too early");
  ZipEntry entry{.name = std::string(directory.subspan(kEntryBytes).data(), name_bytes),
                 .deflated = field(directory, 10, 2) == kDeflated,
                 .crc = static_cast<std::uint32_t>(field(directory, 16, 4)),
                 .stored_bytes = field(directory, 20, 4),
                 .bytes = field(directory, 24, 4),
                 .offset = field(directory, 42, 4)};
  if (Status status = check_name(entry.name); !status) return status.error();
  const std::array numbers{&entry.bytes, &entry.stored_bytes, &entry.offset};
  const Status status = take_64_bits(directory.subspan(kEntryBytes + name_bytes, extra_bytes), numbers);
  if (!status) return status.error();
  constexpr std::uint64_t kEncrypted = 1;
  if ((field(directory, 8, 2) & kEncrypted) != 0) return no_zip(entry.name + " is encrypted");
  if (!entry.deflated && field(directory, 10, 2) != kStored) {
    return no_zip(fmt::format("{} is compressed by method {}", entry.name, field(directory, 10, 2)));
  }
  return entry;
}

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) != 0 ? value >> 1U ^ 0xedb88320U : value >> 1U;
    table[byte] = value;
  }
  return table;
}

std::uint32_t crc_of(std::span<const char> bytes) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) crc = crc >> 8U ^ kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xffU];
  return ~crc;
}

#if ROTA_HAS_ZLIB
// Fills `to` from the entry's first bytes. The stored bytes are read by parts; zlib never sees beyond a part.
class Inflater {
 public:
  Inflater() : ready_(inflateInit2(&stream_, -MAX_WBITS) == Z_OK) {}
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // False where they are no deflated bytes, or too few.
  bool fill(const Bytes& file, const ZipEntry& entry, std::span<char> to) {
    constexpr std::size_t kPart = std::size_t{1} << 18U;
    std::vector<char> part(std::min<std::uint64_t>(kPart, entry.stored_bytes));
    std::uint64_t read = 0;
    int result = ready_ ? Z_OK : Z_MEM_ERROR;
    while (result == Z_OK && !to.empty()) {
      if (stream_.avail_in == 0) {
        const std::size_t next = std::min<std::uint64_t>(part.size(), entry.stored_bytes - read);
        if (next == 0 || !file.read_at(entry.offset + read, std::span(part).first(next))) return false;
        read += next;
        stream_.next_in = reinterpret_cast<Bytef*>(part.data());
        stream_.avail_in = static_cast<uInt>(next);
      }
      const std::size_t room = std::min(to.size(), kPart);
      stream_.next_out = reinterpret_cast<Bytef*>(to.data());
      stream_.avail_out = static_cast<uInt>(room);
      result = inflate(&stream_, Z_NO_FLUSH);
      to = to.subspan(room - stream_.avail_out);
    }
    return to.empty();
  }

 private:
  z_stream stream_{};
  bool ready_;
};

Status fill_inflated(const Bytes& file, const ZipEntry& entry, std::span<char> to) {
  if (Inflater().fill(file, entry, to)) return {};
  return no_zip(fmt::format("{} cannot be inflated to {} bytes", entry.name, entry.bytes));
}
#else
Status fill_inflated(const Bytes&, const ZipEntry& entry, std::span<char>) {
  return wrong(entry.name + " is deflated, and this rota was built without zlib", "a file of numpy.savez");
}
#endif

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(const Bytes& file) {
  const auto place = read_end(file);
  if (!place) return place.error();
  std::vector<char> directory(place->bytes);
  if (!file.read_at(place->offset, directory)) return no_zip("the zip directory cannot be read");
  std::vector<ZipEntry> entries;
  std::set<std::string, std::less<>> names;
  std::span<const char> rest = directory;
  for (std::uint64_t number = 0; number < place->entries; ++number) {
    std::uint64_t taken_bytes = 0;
    auto entry = read_entry(rest, taken_bytes);
    if (!entry) return entry.error();
    if (Status status = find_bytes(file, *entry); !status) return status.error();
    if (Status status = check_sizes(*entry); !status) return status.error();
    if (!names.insert(entry->name).second) return no_zip(entry->name + " is there twice");
    entries.push_back(*std::move(entry));
    rest = rest.subspan(taken_bytes);
  }
  return entries;
}

Result<std::vector<char>> read_zip_entry(const Bytes& file, const ZipEntry& entry, std::uint64_t most) {
  std::vector<char> bytes(std::min(entry.bytes, most));
  if (entry.deflated) {
    if (Status status = fill_inflated(file, entry, bytes); !status) return status.error();
  } else if (!file.read_at(entry.offset, bytes)) {
    return no_zip(entry.name + " ends while it is read");
  }
  if (bytes.size() == entry.bytes && crc_of(bytes) != entry.crc) {
    return no_zip(entry.name + " is not what its checksum says");
  }
  return bytes;
}

}  // namespace rota::tool
