#include "page_store/object.h"

#include <algorithm>
#include <cstring>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/little_endian.h"

namespace rota::page_store {
namespace {

constexpr std::array<char, 8> kMagic{'R', 'O', 'T', 'A', '-', 'O', 'B', 'J'};
constexpr std::uint32_t kVersion = 1;

// Where the fields of a header are. What lies between them is zero.
constexpr std::size_t kVersionAt = 8, kPartAt = 12, kKeyAt = 16, kParentAt = 48, kIndexAt = 80, kBytesAt = 88,
                      kSumAt = 96, kZerosAt = 100, kHeaderSumAt = 124;

Error bad_object(const std::string& what) { return {Errc::io, core::text("stored object: {}", what)}; }

}  // namespace

std::string text(const ObjectName& name) { return core::text("{}.{}", hex(name.key), rota::name(name.part)); }

std::array<std::byte, kObjectHeaderBytes> write_object_header(const ObjectHeader& header) {
  std::array<std::byte, kObjectHeaderBytes> bytes{};
  const std::span<std::byte> all(bytes);
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  core::put_little_endian(all.subspan(kVersionAt, 4), kVersion);
  core::put_little_endian(all.subspan(kPartAt, 4), static_cast<std::uint32_t>(header.name.part));
  std::ranges::copy(header.name.key.bytes, all.begin() + kKeyAt);
  std::ranges::copy(header.parent.bytes, all.begin() + kParentAt);
  core::put_little_endian(all.subspan(kIndexAt, 8), header.index);
  core::put_little_endian(all.subspan(kBytesAt, 8), header.payload_bytes);
  core::put_little_endian(all.subspan(kSumAt, 4), header.payload_sum);
  core::put_little_endian(all.subspan(kHeaderSumAt, 4), core::crc32c(all.first(kHeaderSumAt)));
  return bytes;
}

Result<ObjectHeader> read_object_header(std::span<const std::byte, kObjectHeaderBytes> bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad_object("does not begin with ROTA-OBJ");
  const auto number = [&](std::size_t at, std::size_t size) { return core::little_endian(bytes.subspan(at, size)); };
  if (const std::uint64_t version = number(kVersionAt, 4); version != kVersion) {
    return Error{Errc::unsupported,
                 core::text("stored object: version {}; this build reads version {}", version, kVersion)};
  }
  if (number(kHeaderSumAt, 4) != core::crc32c(bytes.first(kHeaderSumAt))) {
    return bad_object("the header's checksum is wrong");
  }
  const std::uint64_t part = number(kPartAt, 4);
  if (part >= kStoredParts.size()) return bad_object(core::text("part {}, which is none", part));
  ObjectHeader header{.name = {.part = kStoredParts[part]},
                      .index = number(kIndexAt, 8),
                      .payload_bytes = number(kBytesAt, 8),
                      .payload_sum = static_cast<std::uint32_t>(number(kSumAt, 4))};
  std::ranges::copy(bytes.subspan(kKeyAt, header.name.key.bytes.size()), header.name.key.bytes.begin());
  std::ranges::copy(bytes.subspan(kParentAt, header.parent.bytes.size()), header.parent.bytes.begin());
  const auto zeros = bytes.subspan(kZerosAt, kHeaderSumAt - kZerosAt);
  if (!std::ranges::all_of(zeros, [](std::byte byte) { return byte == std::byte{0}; })) {
    return bad_object("bytes that are to be zero are not");
  }
  if (header.payload_bytes > kMaxPayloadBytes) return bad_object(core::text("{} bytes", header.payload_bytes));
  return header;
}

Status check_object(const ObjectHeader& header, const ObjectName& wanted) {
  if (header.name == wanted) return {};
  return bad_object(core::text("{} is where {} belongs", text(header.name), text(wanted)));
}

std::uint32_t payload_sum(std::span<const std::byte> payload) noexcept { return core::crc32c(payload); }

Status check_payload(const ObjectHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.payload_bytes) {
    return bad_object(
        core::text("{} has {} bytes; wanted {}", text(header.name), payload.size(), header.payload_bytes));
  }
  if (const std::uint32_t sum = payload_sum(payload); sum != header.payload_sum) {
    return bad_object(core::text("{}: the checksum is {:#010x}; the bytes give {:#010x}", text(header.name),
                                 header.payload_sum, sum));
  }
  return {};
}

}  // namespace rota::page_store
