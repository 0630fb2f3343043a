#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <set>

#include "harness/pages.h"
#include "harness/worker_scratch.h"
#include "ops/seal/seal.h"
#include "ops/seal/seal_reference.h"

// The definition itself, and the CPU kernels beside it.

namespace rota::ops {
namespace {

using reference::kHeadSizes;
using reference::kWidths;

TEST(SealDefinition, RotatesAsTheDenseMatrixDoes) {
  std::mt19937_64 random(3);
  for (const std::uint32_t dim : kHeadSizes) {
    const RotationShape shape = *codec::rotation_of(dim);
    const std::size_t size = std::size_t{1} << shape.k;
    const auto entry = [&](std::size_t row, std::size_t column) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(row / size * (column / size) % shape.m) / shape.m;
      const int sign = std::popcount(row % size & column % size) % 2 == 0 ? 1 : -1;
      return (std::cos(angle) + std::sin(angle)) * sign / std::sqrt(static_cast<double>(dim));
    };
    std::vector<std::int64_t> values(dim);
    for (auto& value : values) value = static_cast<std::int64_t>(random() % 131071) - 65535;
    std::vector<double> once(dim);
    std::vector<double> twice(dim);
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) once[i] += entry(i, j) * static_cast<double>(values[j]);
    }
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) twice[i] += entry(i, j) * once[j];
      ASSERT_NEAR(twice[i], static_cast<double>(values[i]), 1e-6) << dim;  // its own inverse
    }
    // Symmetric and its own inverse is orthonormal.
    const std::size_t i = random() % dim;
    const std::size_t j = random() % dim;
    EXPECT_DOUBLE_EQ(entry(i, j), entry(j, i));

    // In integers a block's sum is off by the rows' rounding and its own, which the Hadamard adds up at random.
    auto mixed = values;
    reference::Sealer({.codec = turbo(4), .side = KvSide::keys, .head_dim = dim}).rotate(mixed);
    const double root = std::sqrt(static_cast<double>(size));
    const double rounding = shape.m == 1 ? 0 : 0.5 + 65535.0 * shape.m * 0.5 / 8192;
    double error = 0;
    double length = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      ASSERT_LE(std::abs(static_cast<double>(mixed[d]) - once[d] * root), rounding * static_cast<double>(size) + 1e-3);
      error += std::pow(static_cast<double>(mixed[d]) / root - once[d], 2);
      length += once[d] * once[d];
    }
    EXPECT_LE(error / length, 1e-7) << dim;
  }
}

// A page's bytes with and without a deliberate error.
TEST(SealDefinition, IsToldApartFromEveryMutationByTheTestsData) {
  std::mt19937_64 random(20261115);
  std::set<reference::Mutation> told;
  const auto last = static_cast<int>(reference::Mutation::last);
  for (int round = 0; round < 60 && told.size() + 1 < static_cast<std::size_t>(last); ++round) {
    for (const std::uint32_t bits : kWidths) {
      const std::uint32_t dim = kHeadSizes[random() % 16];
      const PageFormat format{.codec = Turbo{.bits = bits,
                                             .scale = static_cast<ScaleRule>(random() % 5 < 3 ? 2 : random() % 2),
                                             .key_mean = random() % 4 != 0},
                              .side = random() % 2 == 0 ? KvSide::keys : KvSide::values,
                              .head_dim = dim,
                              .tokens = 64};
      const auto kind = test::kPageKinds[random() % test::kPageKinds.size()];
      const auto values = test::draw_page(random, kind, 64, dim);
      const auto right = reference::Sealer(format).seal(values, 3);
      for (int m = 1; m < last; ++m) {
        const auto mutation = static_cast<reference::Mutation>(m);
        if (told.contains(mutation)) continue;
        if (reference::Sealer(format, mutation).seal(values, 3) != right) told.insert(mutation);
      }
    }
  }
  for (int m = 1; m < last; ++m) {
    EXPECT_TRUE(told.contains(static_cast<reference::Mutation>(m))) << "mutation " << m << " changes nothing";
  }
}

// What a launch tells kernels of a format.
float launch_unit(const PageFormat& format) {
  const SealPlan plan{{}, {}, {}, std::vector<std::uint32_t>(kPageWords)};
  return choose_seal({.shape = {.heads = 1}}, {.buffer = {}, .format = format, .shape = {.pages = 1, .heads = 1}}, plan)
      .front()
      .params.unit;
}

// The CPU kernels as each instruction set has them, beside the definition.
TEST(SealDefinition, IsWhatEveryInstructionSetDoes) {
  std::mt19937_64 random(77);
  for (const std::uint32_t dim : kHeadSizes) {
    for (const std::uint32_t bits : kWidths) {
      const PageFormat format{.codec = Turbo{.bits = bits, .scale = static_cast<ScaleRule>(random() % 3)},
                              .side = random() % 2 == 0 ? KvSide::keys : KvSide::values,
                              .head_dim = dim,
                              .tokens = 64};
      const auto values = test::draw_page(random, test::kPageKinds[random() % test::kPageKinds.size()], 64, dim);
      const auto tokens = static_cast<std::uint32_t>(random() % 65);
      reference::Sealer sealer(format);
      const auto wanted = sealer.seal(std::span(values).first(std::size_t{tokens} * dim), 2);
      const auto wanted_back = reference::Unsealer(format).unseal(wanted);

      auto table = codec::table_of(format);
      std::array<std::uint32_t, kPageWords> plan{0, 0, tokens, 2};
      const SealParams params{.dense = {.offset = 0, .page = 0, .slot = dim, .head = 0, .dim = 1},
                              .layout_ = codec::layout_of(format),
                              .rotation = *codec::rotation_of(dim),
                              .heads = 1,
                              .pages = 1,
                              .scale_rule = static_cast<uint>(std::get<Turbo>(format.codec).scale),
                              .unit = launch_unit(format),
                              .limit = 65504};
      for (const core::Isa isa : core::kIsas) {
        if (!core::runs_here(isa)) continue;
        auto from = values;
        std::vector<std::byte> page(wanted.size(), std::byte{0xff});
        std::uint64_t counted = 0;
        const std::array<std::uint32_t, 1> half{static_cast<std::uint32_t>(DType::f16)};
        const auto bytes_of = [](auto& words) { return reinterpret_cast<std::byte*>(words.data()); };
        seal_cpu({.constants = half,
                  .params = &params,
                  .bound = {bytes_of(from), page.data(), bytes_of(plan), bytes_of(table),
                            reinterpret_cast<std::byte*>(&counted)},
                  .first_item = 0,
                  .last_item = 1,
                  .scratch = test::worker_scratch()},
                 isa);
        ASSERT_TRUE(page == wanted) << core::name_of(isa) << ", head size " << dim << ", bits " << bits;
        ASSERT_EQ(counted, sealer.non_finite());

        std::vector<float> back(std::size_t{64} * dim);
        std::array<std::uint32_t, kPageWords> all{0, 0, 64, 0};
        const std::array<std::uint32_t, 2> single{static_cast<std::uint32_t>(DType::f32), 1};
        unseal_cpu({.constants = single,
                    .params = &params,
                    .bound = {page.data(), bytes_of(back), bytes_of(all), bytes_of(table)},
                    .first_item = 0,
                    .last_item = 1,
                    .scratch = test::worker_scratch()},
                   isa);
        ASSERT_EQ(std::memcmp(back.data(), wanted_back.data(), back.size() * sizeof(float)), 0)
            << core::name_of(isa) << ", head size " << dim << ", bits " << bits;
      }
    }
  }
}

}  // namespace
}  // namespace rota::ops
