#include "codec/dense/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "harness/elements.h"

namespace rota::codec {
namespace {

// Each length with other strides, so that all meet.
TEST(DenseRows, ConvertAsDefinedAtEveryLengthWithEveryInstructionSet) {
  std::mt19937_64 random(5);
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      for (const core::Isa isa : core::kIsas) {
        if (!core::runs_here(isa)) continue;
        const ConvertRow convert = row_converter(from.dtype, to.dtype, isa);
        for (std::uint64_t i = 0; i < std::uint64_t{70} * 4; ++i) {
          const std::uint64_t count = i / 4;
          const std::uint64_t from_stride = i % 2 == 0 ? 1 : 3;
          const std::uint64_t to_stride = i % 4 < 2 ? 1 : 2;
          const auto source = test::random_elements(random, from.dtype, count * from_stride);
          std::vector<std::byte> found((count * to_stride + 1) * to.bytes, std::byte{0x5a});
          std::vector<std::byte> wanted = found;
          for (std::uint64_t k = 0; k < count; ++k) {
            const std::uint32_t bits = test::load_bits(source, from.dtype, k * from_stride);
            test::save_bits(wanted, to.dtype, k * to_stride, test::convert_bits(bits, from.dtype, to.dtype));
          }
          convert({source.data(), from_stride}, {found.data(), to_stride}, count);
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
      row_converter(DType::f32, to, isa)({reinterpret_cast<const std::byte*>(patterns.data())},
                                         {reinterpret_cast<std::byte*>(found.data())}, patterns.size());
      for (std::size_t i = 0; i < patterns.size(); ++i) {
        ASSERT_EQ(found[i], test::convert_bits(patterns[i], DType::f32, to))
            << std::hex << patterns[i] << ", " << core::name_of(isa);
      }
    }
  }
}

TEST(DenseRows, CountWhatIsNotFiniteAtEveryLengthWithEveryInstructionSet) {
  std::mt19937_64 random(6);
  for (const DTypeInfo& type : kDTypes) {
    for (const core::Isa isa : core::kIsas) {
      if (!core::runs_here(isa)) continue;
      const CountRow count_row = non_finite_counter(type.dtype, isa);
      for (std::uint64_t i = 0; i < std::uint64_t{70} * 2; ++i) {
        const std::uint64_t count = i / 2;
        const std::uint64_t stride = i % 2 == 0 ? 1 : 3;
        const auto row = test::random_elements(random, type.dtype, count * stride);
        std::uint64_t wanted = 0;
        for (std::uint64_t k = 0; k < count; ++k) {
          const double value = test::value_of(test::load_bits(row, type.dtype, k * stride), type.dtype);
          if (!std::isfinite(value)) ++wanted;
        }
        ASSERT_EQ(count_row({row.data(), stride}, count), wanted)
            << type.name << ", " << count << " elements, " << core::name_of(isa);
      }
    }
  }
}

TEST(DenseRows, CountMoreThanALaneCanHold) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 21) + 5;
  for (const DTypeInfo& type : kDTypes) {
    const std::vector<std::byte> row(kCount * type.bytes, std::byte{0xff});
    for (const core::Isa isa : core::kIsas) {
      if (!core::runs_here(isa)) continue;
      EXPECT_EQ(non_finite_counter(type.dtype, isa)({row.data()}, kCount), kCount) << core::name_of(isa);
    }
  }
}

}  // namespace
}  // namespace rota::codec
