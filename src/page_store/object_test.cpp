#include "page_store/object.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "harness/on_device.h"

// Headers of objects, by docs/store.md and not by the code.

namespace rota::page_store {
namespace {

ObjectHeader sample() {
  ObjectHeader header{.name = {.part = StoredPart::window}, .index = 0x1122334455667788, .payload_bytes = 4096};
  for (std::size_t i = 0; i < 32; ++i) {
    header.name.key.bytes[i] = static_cast<std::byte>(i);
    header.parent.bytes[i] = static_cast<std::byte>(100 + i);
  }
  header.payload_sum = 0xa1b2c3d4;
  return header;
}

using Written = std::array<std::byte, kObjectHeaderBytes>;

template <class T>
T number_at(const Written& bytes, std::size_t at) {
  T number = 0;
  std::memcpy(&number, &bytes[at], sizeof(number));
  return number;
}

void sum_again(Written& bytes) {
  const std::uint32_t sum = core::crc32c(std::span(bytes).first(124));
  std::memcpy(&bytes[124], &sum, sizeof(sum));
}

TEST(StoredObject, HeadersAreWhatTheDocumentSays) {
  const Written bytes = write_object_header(sample());
  EXPECT_EQ(std::memcmp(bytes.data(), "ROTA-OBJ", 8), 0);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 8), 1U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 12), 1U);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(bytes[16 + i], static_cast<std::byte>(i));
    EXPECT_EQ(bytes[48 + i], static_cast<std::byte>(100 + i));
  }
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 80), 0x1122334455667788U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 88), 4096U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 96), 0xa1b2c3d4U);
  for (std::size_t i = 100; i < 124; ++i) EXPECT_EQ(bytes[i], std::byte{0});
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 124), core::crc32c(std::span(bytes).first(124)));
  EXPECT_EQ(read_object_header(bytes).value(), sample());
}

TEST(StoredObject, NoFlippedBitPasses) {
  const Written whole = write_object_header(sample());
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Written bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(read_object_header(bytes).ok()) << bit;
  }
}

TEST(StoredObject, FieldsThatCannotBeAreRefused) {
  const auto refused = [](std::size_t at, std::uint32_t number) {
    Written bytes = write_object_header(sample());
    std::memcpy(&bytes[at], &number, sizeof(number));
    sum_again(bytes);
    const auto header = read_object_header(bytes);
    EXPECT_FALSE(header.ok());
    return header ? Errc::internal : header.error().code;
  };
  EXPECT_EQ(refused(8, 2), Errc::unsupported);
  EXPECT_EQ(refused(12, 3), Errc::io);
  EXPECT_EQ(refused(92, 0x80000000), Errc::io) << "a payload of 2^63 bytes";
  EXPECT_EQ(refused(100, 1), Errc::io);
  EXPECT_EQ(refused(120, 1), Errc::io);
}

TEST(StoredObject, AnotherObjectIsRefused) {
  ObjectName other = sample().name;
  EXPECT_OK(check_object(sample(), other));
  other.part = StoredPart::pages;
  EXPECT_EQ(check_object(sample(), other).error().code, Errc::io);
  other = sample().name;
  other.key.bytes[31] ^= std::byte{1};
  EXPECT_EQ(check_object(sample(), other).error().code, Errc::io);
}

TEST(StoredObject, PayloadsHaveTheirSizeAndTheirSum) {
  std::vector<std::byte> payload(100, std::byte{5});
  ObjectHeader header = sample();
  header.payload_bytes = payload.size();
  header.payload_sum = payload_sum(payload);
  EXPECT_OK(check_payload(header, payload));
  payload[50] ^= std::byte{16};
  EXPECT_FALSE(check_payload(header, payload).ok());
  payload.pop_back();
  EXPECT_FALSE(check_payload(header, payload).ok());
}

}  // namespace
}  // namespace rota::page_store
