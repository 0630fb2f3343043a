#include <gtest/gtest.h>

#include "harness/on_device.h"
#include "ops/rope/rope_reference.h"

// Each of mlx-native's rotations is one call of `rope`. What a function computes is written here from that function's
// own formulas, in f64; docs/migrating-from-mlx-native.md has the same table.

namespace rota::test {
namespace {

constexpr std::uint64_t kTokens = 4;
constexpr std::uint64_t kHeads = 3;
constexpr std::uint64_t kDim = 32;
constexpr double kBase = 1e4;

// What an old function does to one head of one token: pairs of coordinates and their angles. The rest is copied.
struct OldPair {
  std::uint64_t first, second;
  double angle;
};
using OldFunction = std::function<std::vector<OldPair>(std::uint64_t token)>;

class RopeMigration : public OnDevice {
 protected:
  void expect_as_old(TensorUnderTest& tensor, const Rope& call, const OldFunction& old) {
    ASSERT_OK(run_rope(device, call));
    const auto& shape = tensor.tensor.from.shape;
    for (std::uint64_t token = 0; token < shape.tokens; ++token) {
      for (std::uint64_t head = 0; head < shape.heads; ++head) {
        std::vector<double> wanted = tensor.head_before(token, head);
        if (tensor.tensor.norm) wanted = norm_by_definition(wanted, tensor.tensor.norm->epsilon, weight);
        std::vector<double> lengths;
        for (const double value : wanted) lengths.push_back(std::fabs(value));
        for (const auto& [first, second, angle] : old(token)) {
          const double a = wanted[first];
          const double b = wanted[second];
          wanted[first] = a * std::cos(angle) - b * std::sin(angle);
          wanted[second] = a * std::sin(angle) + b * std::cos(angle);
          lengths[first] = lengths[second] = std::hypot(a, b);
        }
        const auto found = tensor.head_after(token, head);
        for (std::uint64_t d = 0; d < shape.dim; ++d) {
          EXPECT_NEAR(found[d], wanted[d], rope_bound(tensor.tensor, wanted[d], lengths[d]))
              << "token " << token << ", coordinate " << d;
        }
      }
    }
  }

  TensorUnderTest make(DType dtype, std::uint64_t heads = kHeads) {
    return {device, random, {.from = dtype, .to = dtype, .shape = {.tokens = kTokens, .heads = heads, .dim = kDim}}};
  }

  // theta^(-2i/d), as the old functions have it.
  static double frequency(std::uint64_t i, std::uint64_t d) {
    return std::pow(kBase, -2.0 * static_cast<double>(i) / static_cast<double>(d));
  }

  static double at(const std::vector<std::int64_t>& positions, std::uint64_t axis, std::uint64_t token) {
    return static_cast<double>(positions[axis * kTokens + token]);
  }

  std::mt19937_64 random{7};
  const std::vector<std::int64_t> positions{0, 5, 1000, 40000};
  const std::vector<std::int64_t> four_axes{0, 5, 90, 400, 1, 6, 91, 7, 2, 3, 4, 5, 60, 70, 80, 90};
  std::vector<double> weight;
};

TEST_F(RopeMigration, Rope) {
  for (const DTypeInfo& dtype : kDTypes) {
    auto tensor = make(dtype.dtype, 1);
    expect_as_old(tensor,
                  {.tensors = {&tensor.tensor, 1},
                   .positions = positions,
                   .rotary = {.pairing = Pairing::interleaved, .theta = kBase}},
                  [&](std::uint64_t token) {
                    std::vector<OldPair> pairs;
                    for (std::uint64_t i = 0; i < kDim / 2; ++i) {
                      pairs.push_back({2 * i, 2 * i + 1, at(positions, 0, token) * frequency(i, kDim)});
                    }
                    return pairs;
                  });
  }
}

TEST_F(RopeMigration, RopeNeoxWithAndWithoutFrequencyFactors) {
  constexpr std::uint64_t kRopeDim = 12;
  std::vector<float> factors(kDim / 2, 1.0F);
  for (std::size_t i = 0; i < kRopeDim / 2; ++i) factors[i] = 1.0F + static_cast<float>(i);
  for (const bool with_factors : {false, true}) {
    auto tensor = make(with_factors ? DType::f32 : DType::bf16);
    Rotary rotary{.pairing = Pairing::halves, .theta = kBase, .turning_pairs = kRopeDim / 2};
    if (with_factors) rotary.factors = factors;
    expect_as_old(
        tensor, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}, [&](std::uint64_t token) {
          std::vector<OldPair> pairs;
          for (std::uint64_t i = 0; i < kRopeDim / 2; ++i) {
            const double angle = at(positions, 0, token) * frequency(i, kDim);
            pairs.push_back({i, i + kDim / 2, with_factors ? angle / static_cast<double>(factors[i]) : angle});
          }
          return pairs;
        });
  }
}

TEST_F(RopeMigration, RopeMultiMrope) {
  auto tensor = make(DType::bf16);
  expect_as_old(tensor,
                {.tensors = {&tensor.tensor, 1},
                 .positions = four_axes,
                 .rotary = {.pairing = Pairing::halves, .theta = kBase, .sections = contiguous({4, 5, 4, 3})}},
                [&](std::uint64_t token) {
                  std::vector<OldPair> pairs;
                  for (std::uint64_t p = 0; p < kDim / 2; ++p) {
                    const std::uint64_t axis = p < 4 ? 0 : p < 9 ? 1 : p < 13 ? 2 : 3;
                    pairs.push_back({p, p + kDim / 2, at(four_axes, axis, token) * frequency(p, kDim)});
                  }
                  return pairs;
                });
}

TEST_F(RopeMigration, RopeMultiImrope) {
  auto tensor = make(DType::f32);
  expect_as_old(
      tensor,
      {.tensors = {&tensor.tensor, 1},
       .positions = four_axes,
       .rotary = {.pairing = Pairing::halves,
                  .theta = kBase,
                  .sections = RopeSections{.pairs = {6, 5, 5, 0},
                                           .order = SectionOrder::interleaved,
                                           .frequencies = SectionFrequencies::shared}}},
      [&](std::uint64_t token) {
        std::vector<OldPair> pairs;
        for (std::uint64_t p = 0; p < kDim / 2; ++p) {
          const std::uint64_t axis = p % 3 == 0 && p < 18 ? 0 : p % 3 == 1 && p < 15 ? 1 : p % 3 == 2 && p < 15 ? 2 : 3;
          pairs.push_back({p, p + kDim / 2, at(four_axes, axis, token) * frequency(p, kDim)});
        }
        return pairs;
      });
}

// The old rule for part of a head, which pairs over the whole head although the models do not. The old sections were
// {3, 3, 2}; pairs beyond the eighth do not turn.
TEST_F(RopeMigration, RopeMultiOfPartOfAHeadAsItWas) {
  constexpr std::uint64_t kRopeDim = 16;
  const std::vector<std::int64_t> three_axes(four_axes.begin(), four_axes.begin() + 3 * kTokens);
  auto tensor = make(DType::f32);
  expect_as_old(tensor,
                {.tensors = {&tensor.tensor, 1},
                 .positions = three_axes,
                 .rotary = {.pairing = Pairing::halves,
                            .theta = kBase,
                            .turning_pairs = kRopeDim / 2,
                            .exponent_dim = kRopeDim,
                            .sections = contiguous({3, 3, 10})}},
                [&](std::uint64_t token) {
                  std::vector<OldPair> pairs;
                  for (std::uint64_t p = 0; p < kRopeDim / 2; ++p) {
                    const std::uint64_t axis = p < 3 ? 0 : p < 6 ? 1 : 2;
                    pairs.push_back({p, p + kDim / 2, at(four_axes, axis, token) * frequency(p, kRopeDim)});
                  }
                  return pairs;
                });
}

TEST_F(RopeMigration, RopeMultiVision) {
  const std::vector<std::int64_t> two_axes(four_axes.begin(), four_axes.begin() + 2 * kTokens);
  auto tensor = make(DType::f32);
  expect_as_old(tensor,
                {.tensors = {&tensor.tensor, 1},
                 .positions = two_axes,
                 .rotary = {.pairing = Pairing::halves,
                            .theta = kBase,
                            .exponent_dim = kDim / 2,
                            .sections = contiguous({10, 6}, SectionFrequencies::own)}},
                [&](std::uint64_t token) {
                  std::vector<OldPair> pairs;
                  for (std::uint64_t p = 0; p < kDim / 2; ++p) {
                    const double position = at(two_axes, p < 10 ? 0 : 1, token);
                    pairs.push_back({p, p + kDim / 2, position * frequency(p < 10 ? p : p - 10, kDim / 2)});
                  }
                  return pairs;
                });
}

TEST_F(RopeMigration, Vision2dRope) {
  const std::vector<std::int64_t> x_then_y(four_axes.begin(), four_axes.begin() + 2 * kTokens);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    auto tensor = make(dtype);
    expect_as_old(tensor,
                  {.tensors = {&tensor.tensor, 1},
                   .positions = x_then_y,
                   .rotary = {.pairing = Pairing::section_halves,
                              .theta = kBase,
                              .sections = contiguous({kDim / 4, kDim / 4}, SectionFrequencies::own)}},
                  [&](std::uint64_t token) {
                    std::vector<OldPair> pairs;
                    for (const std::uint64_t axis : {0U, 1U}) {
                      for (std::uint64_t i = 0; i < kDim / 4; ++i) {
                        const std::uint64_t first = axis * kDim / 2 + i;
                        pairs.push_back({first, first + kDim / 4, at(x_then_y, axis, token) * frequency(i, kDim / 2)});
                      }
                    }
                    return pairs;
                  });
  }
}

TEST_F(RopeMigration, FusedHeadNormRope) {
  constexpr std::uint64_t kRopeDim = 16;
  auto tensor = make(DType::f32);
  std::vector<float> values;
  for (std::uint64_t d = 0; d < kDim; ++d) values.push_back(0.5F + 0.125F * static_cast<float>(d));
  weight.assign(values.begin(), values.end());
  Buffer weights = device.allocate(kDim * sizeof(float)).value();
  ASSERT_OK(weights.write(std::as_bytes(std::span(values))));
  tensor.tensor.norm = HeadNorm{
      .epsilon = 1e-6, .weight = View::token_major(weights, DType::f32, {.tokens = 1, .heads = 1, .dim = kDim})};

  // The f32 result, and beside it a bf16 copy as [head, token, i]: the same source in one call.
  Buffer permuted = device.allocate(kTokens * kHeads * kDim * 2).value();
  const Shape shape = tensor.tensor.from.shape;
  const std::vector<RopeTensor> both{tensor.tensor,
                                     {.from = tensor.tensor.from,
                                      .to = MutView::head_major(permuted, DType::bf16, shape),
                                      .norm = tensor.tensor.norm}};
  expect_as_old(tensor,
                {.tensors = both,
                 .positions = positions,
                 .rotary = {.pairing = Pairing::halves, .theta = kBase, .turning_pairs = kRopeDim / 2}},
                [&](std::uint64_t token) {
                  std::vector<OldPair> pairs;
                  for (std::uint64_t i = 0; i < kRopeDim / 2; ++i) {
                    pairs.push_back({i, i + kDim / 2, at(positions, 0, token) * frequency(i, kDim)});
                  }
                  return pairs;
                });
  std::vector<std::byte> bytes(permuted.size_bytes());
  ASSERT_OK(permuted.read(bytes));
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    for (std::uint64_t head = 0; head < kHeads; ++head) {
      const auto wanted = tensor.head_after(token, head);
      for (std::uint64_t d = 0; d < kDim; ++d) {
        const std::uint32_t found = load_bits(bytes, DType::bf16, (head * kTokens + token) * kDim + d);
        EXPECT_EQ(found, bits_of(wanted[d], DType::bf16));
      }
    }
  }
}

}  // namespace
}  // namespace rota::test
