#include "codec/dense/rows.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "harness/elements.h"

namespace rota::codec {
namespace {

TEST(DenseRows, ConvertAsDefinedAtEveryLengthOnThisCpuAndOnAny) {
  std::mt19937_64 random(5);
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      for (const ConvertRow convert :
           {row_converter(from.dtype, to.dtype), portable_row_converter(from.dtype, to.dtype)}) {
        for (std::uint64_t count = 0; count < 70; ++count) {
          const auto source = test::random_elements(random, from.dtype, count);
          std::vector<std::byte> found((count + 1) * to.bytes, std::byte{0x5a});
          std::vector<std::byte> wanted = found;
          for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint32_t bits = test::load_bits(source, from.dtype, i);
            test::save_bits(wanted, to.dtype, i, test::convert_bits(bits, from.dtype, to.dtype));
          }
          convert(source.data(), found.data(), count);
          ASSERT_EQ(found, wanted) << from.name << " to " << to.name << ", " << count << " elements";
        }
      }
    }
  }
}

TEST(DenseRows, OfThisCpuGiveTheBitsOfTheDefinitionForEveryUpperHalf) {
  std::vector<std::uint32_t> patterns;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x3000U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      patterns.push_back(upper << 16 | lower);
    }
  }
  for (const DType to : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> found(patterns.size());
    row_converter(DType::f32, to)(reinterpret_cast<const std::byte*>(patterns.data()),
                                  reinterpret_cast<std::byte*>(found.data()), patterns.size());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      ASSERT_EQ(found[i], test::convert_bits(patterns[i], DType::f32, to)) << std::hex << patterns[i];
    }
  }
}

}  // namespace
}  // namespace rota::codec
