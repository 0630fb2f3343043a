#include "codec/dense/rows.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "harness/elements.h"

namespace rota::codec {
namespace {

TEST(DenseRows, ConvertAsDefinedAtEveryLengthWithEveryInstructionSet) {
  std::mt19937_64 random(5);
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      for (const core::Isa isa : core::kIsas) {
        if (!core::runs_here(isa)) continue;
        const ConvertRow convert = row_converter(from.dtype, to.dtype, isa);
        for (std::uint64_t count = 0; count < 70; ++count) {
          const auto source = test::random_elements(random, from.dtype, count);
          std::vector<std::byte> found((count + 1) * to.bytes, std::byte{0x5a});
          std::vector<std::byte> wanted = found;
          for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint32_t bits = test::load_bits(source, from.dtype, i);
            test::save_bits(wanted, to.dtype, i, test::convert_bits(bits, from.dtype, to.dtype));
          }
          convert(source.data(), found.data(), count);
          ASSERT_EQ(found, wanted) << from.name << " to " << to.name << ", " << count << " elements, "
                                   << core::name_of(isa);
        }
      }
    }
  }
}

TEST(DenseRows, GiveTheBitsOfTheDefinitionForEveryUpperHalf) {
  const std::vector<std::uint32_t> patterns = test::telling_patterns(DType::f32);
  for (const core::Isa isa : core::kIsas) {
    if (!core::runs_here(isa)) continue;
    for (const DType to : {DType::f16, DType::bf16}) {
      std::vector<std::uint16_t> found(patterns.size());
      row_converter(DType::f32, to, isa)(reinterpret_cast<const std::byte*>(patterns.data()),
                                         reinterpret_cast<std::byte*>(found.data()), patterns.size());
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        ASSERT_EQ(found[i], test::convert_bits(patterns[i], DType::f32, to))
            << std::hex << patterns[i] << ", " << core::name_of(isa);
      }
    }
  }
}

}  // namespace
}  // namespace rota::codec
