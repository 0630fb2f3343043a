#include "rota/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "harness/elements.h"

namespace rota {
namespace {

using test::convert_bits;

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(DType, EveryHalfWidensAsDefined) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    ASSERT_EQ(bits(f32_from_f16(static_cast<std::uint16_t>(half))), convert_bits(half, DType::f16, DType::f32)) << half;
    ASSERT_EQ(bits(f32_from_bf16(static_cast<std::uint16_t>(half))), convert_bits(half, DType::bf16, DType::f32))
        << half;
  }
}

TEST(DType, EveryHalfComesBack) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const auto narrow = static_cast<std::uint16_t>(half);
    ASSERT_TRUE(std::isnan(f32_from_f16(narrow)) || f16_from_f32(f32_from_f16(narrow)) == half) << half;
    ASSERT_TRUE(std::isnan(f32_from_bf16(narrow)) || bf16_from_f32(f32_from_bf16(narrow)) == half) << half;
  }
}

TEST(DType, NarrowsAsDefinedAroundEveryTie) {
  for (const std::uint32_t wide : test::telling_patterns(DType::f32)) {
    const auto value = std::bit_cast<float>(wide);
    ASSERT_EQ(f16_from_f32(value), convert_bits(wide, DType::f32, DType::f16)) << std::hex << wide;
    ASSERT_EQ(bf16_from_f32(value), convert_bits(wide, DType::f32, DType::bf16)) << std::hex << wide;
  }
}

TEST(DType, NarrowsAsDefinedAnywhere) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto wide = static_cast<std::uint32_t>(random());
    const auto value = std::bit_cast<float>(wide);
    ASSERT_EQ(f16_from_f32(value), convert_bits(wide, DType::f32, DType::f16)) << std::hex << wide;
    ASSERT_EQ(bf16_from_f32(value), convert_bits(wide, DType::f32, DType::bf16)) << std::hex << wide;
  }
}

TEST(DType, KnownValues) {
  static_assert(f16_from_f32(1.0F) == 0x3c00);
  static_assert(f16_from_f32(65504.0F) == 0x7bff);
  static_assert(f16_from_f32(65519.99F) == 0x7bff);
  static_assert(f16_from_f32(65520.0F) == 0x7c00, "overflow goes to infinity");
  static_assert(f16_from_f32(0x1p-24F) == 0x0001);
  static_assert(f16_from_f32(0x1p-25F) == 0x0000, "a tie goes to even");
  static_assert(f16_from_f32(0x1.8p-24F) == 0x0002, "a tie goes to even");
  static_assert(f16_from_f32(-0.0F) == 0x8000);
  static_assert(bf16_from_f32(1.0F) == 0x3f80);
  static_assert(bf16_from_f32(std::numeric_limits<float>::max()) == 0x7f80, "overflow goes to infinity");
  static_assert(bf16_from_f32(0x1.01p0F) == 0x3f80, "a tie goes to even");
  static_assert(bf16_from_f32(0x1.03p0F) == 0x3f82, "a tie goes to even");
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0xff800001U)))));
}

TEST(DType, TableIsInTheOrderOfTheEnumerators) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(kDTypes[i].dtype), i);
  EXPECT_FALSE(is_known(static_cast<DType>(kDTypes.size())));
}

}  // namespace
}  // namespace rota
