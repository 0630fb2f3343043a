#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rota/result.h"
#include "rota/store.h"

// What is stored under a name: a header, and a payload. docs/store.md has the same table.

namespace rota::page_store {

struct ObjectName {
  PageKey key;
  StoredPart part = StoredPart::pages;

  friend constexpr auto operator<=>(const ObjectName&, const ObjectName&) = default;
};

// "<64 digits>.pages", in messages and as a file's name.
std::string text(const ObjectName& name);

struct ObjectHeader {
  ObjectName name;
  PageKey parent = {};
  std::uint64_t index = 0;  // pages before it in its chain
  std::uint64_t payload_bytes = 0;
  std::uint32_t payload_sum = 0;  // CRC-32C

  friend constexpr bool operator==(const ObjectHeader&, const ObjectHeader&) = default;
};

inline constexpr std::uint64_t kObjectHeaderBytes = 128;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 40;

std::array<std::byte, kObjectHeaderBytes> write_object_header(const ObjectHeader& header);

// Errc::io for anything that is no such header, Errc::unsupported for another version.
Result<ObjectHeader> read_object_header(std::span<const std::byte, kObjectHeaderBytes> bytes);

// Whether the header is that of the object that was asked for.
Status check_object(const ObjectHeader& header, const ObjectName& wanted);

std::uint32_t payload_sum(std::span<const std::byte> payload) noexcept;
Status check_payload(const ObjectHeader& header, std::span<const std::byte> payload);

}  // namespace rota::page_store
