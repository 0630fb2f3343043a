#include "core/crc32c.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace rota::core {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Bit by bit, as the definition says.
std::uint32_t by_definition(std::span<const std::byte> bytes) {
  std::uint32_t sum = ~0U;
  for (const std::byte byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool differs = ((sum ^ std::to_integer<std::uint32_t>(byte) >> bit) & 1) != 0;
      sum = sum >> 1 ^ (differs ? 0x82f63b78U : 0U);
    }
  }
  return ~sum;
}

// The examples of RFC 3720, B.4.
TEST(Crc32c, OfTheStandardsExamples) {
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  std::vector<std::byte> falling(rising.rbegin(), rising.rend());
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{255})), 0x62a8ab43U);
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cU);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

RC_GTEST_PROP(Crc32c, IsItsDefinitionHoweverItIsComputed, ()) {
  const auto size = *rc::gen::element<std::size_t>(0, 1, 7, 8, 9, 1023, 3071, 3072, 3073, 3080, 6144, 9999);
  const auto start = *rc::gen::inRange<std::size_t>(0, 9);
  const auto cut = *rc::gen::inRange<std::size_t>(0, size + 1);
  const auto all = *rc::gen::container<std::vector<std::uint8_t>>(start + size, rc::gen::arbitrary<std::uint8_t>());
  const auto bytes = std::as_bytes(std::span(all)).subspan(start);
  const std::uint32_t sum = by_definition(bytes);
  RC_ASSERT(crc32c(bytes) == sum);
  RC_ASSERT(crc32c_by_tables(bytes) == sum);
  RC_ASSERT(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))) == sum);
}

}  // namespace
}  // namespace rota::core
