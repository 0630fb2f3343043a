#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rope/rope_calls_reference.h"

// Heads that are normed on their way.

namespace rota::test {
namespace {

TEST_F(RopeOnDevice, NormsASpoiltHeadWithoutSpoilingOthers) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 3, .heads = 1, .dim = 32}});
  const auto sound = tensor.source;
  tensor.tensor.norm = HeadNorm{.epsilon = 1e-6};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  const std::vector<std::int64_t> positions{1, 2, 3};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  const std::vector<std::vector<double>> wanted{tensor.head_after(0, 0), tensor.head_after(2, 0)};
  save_bits(tensor.source, DType::f32, 40, bits_of(std::numeric_limits<double>::quiet_NaN(), DType::f32));
  tensor.write_source();
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  EXPECT_EQ(tensor.head_after(0, 0), wanted[0]);
  EXPECT_EQ(tensor.head_after(2, 0), wanted[1]);
  for (const double value : tensor.head_after(1, 0)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(RopeOnDevice, NormsZerosToZeros) {
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 2, .heads = 1, .dim = 32}});
  std::ranges::fill(tensor.source, std::byte{0});
  tensor.write_source();
  tensor.tensor.norm = HeadNorm{.epsilon = 1e-6};
  expect_rotated(tensor, {.pairing = Pairing::halves, .theta = 1e4}, {4, 9});
  for (const double value : tensor.head_after(1, 0)) EXPECT_EQ(value, 0);
}

// Position 0 turns nothing: a norm alone. Then a rotation alone.
TEST_F(RopeOnDevice, FusedAndSeparateNormAgree) {
  for (const DTypeInfo& dtype : kDTypes) {
    for (const std::uint64_t dim : {64U, 128U, 512U}) {
      TensorUnderTest fused(device, random,
                            {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 4, .heads = 2, .dim = dim}});
      fused.set_norm(device, random, {.epsilon = 1e-6}, DType::f32);
      TensorUnderTest separate(
          device, random, {.from = dtype.dtype, .to = dtype.dtype, .shape = {.tokens = 4, .heads = 2, .dim = dim}});
      const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
      const auto positions = some_positions(4);
      expect_rotated(fused, rotary, positions);

      RopeTensor norm_only{.from = fused.tensor.from, .to = separate.tensor.to, .norm = fused.tensor.norm};
      const RopeTensor turn_only = RopeTensor::in_place(separate.tensor.to);
      const std::vector<std::int64_t> zeros(4);
      Encoder encoder = device.encoder();
      rope(encoder, {.tensors = {&norm_only, 1}, .positions = zeros, .rotary = rotary});
      rope(encoder, {.tensors = {&turn_only, 1}, .positions = positions, .rotary = rotary});
      ASSERT_OK(std::move(encoder).submit().value().wait());

      // The separate one rounds both coordinates once more in between: half a last place of each.
      for (std::uint64_t token = 0; token < 4; ++token) {
        const auto one = fused.head_after(token, 1);
        const auto two = separate.head_after(token, 1);
        for (std::uint64_t d = 0; d < dim; ++d) {
          const double length = std::hypot(one[d], one[(d + dim / 2) % dim]);
          const double bound = 2 * last_place(dtype.dtype, length) + 1e-6 * length + kFlushed;
          EXPECT_NEAR(one[d], two[d], bound) << dtype.name << ", " << dim;
        }
      }
    }
  }
}

TEST_F(RopeOnDevice, TakesAWeightForEachHead) {
  constexpr std::uint64_t kHeads = 3;
  constexpr std::uint64_t kDim = 24;
  TensorUnderTest tensor(device, random, {.shape = {.tokens = 2, .heads = kHeads, .dim = kDim}});
  Guarded weight(device, kHeads * kDim, DType::bf16);
  std::vector<std::byte> bytes(kHeads * kDim * 2);
  for (std::uint64_t i = 0; i < kHeads * kDim; ++i) {
    save_bits(bytes, DType::bf16, i, bits_of(0.25 * static_cast<double>(i % 31), DType::bf16));
  }
  weight.write(bytes);
  // [dim][head]: neither the heads' nor the dims' stride is the usual one.
  View view = View::token_major(weight.buffer, DType::bf16, {1, kHeads, kDim});
  view.offset = weight.offset;
  view.head_stride = 1;
  view.dim_stride = kHeads;
  const HeadNorm norm{.epsilon = 1e-6, .weight = view};
  tensor.tensor.norm = norm;
  const Rotary rotary{.pairing = Pairing::interleaved, .theta = 1e4};
  const std::vector<std::int64_t> positions{11, 12};
  ASSERT_OK(run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary}));
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    std::vector<double> of_head;
    for (std::uint64_t d = 0; d < kDim; ++d)
      of_head.push_back(value_of(load_bits(bytes, DType::bf16, d * kHeads + head), DType::bf16));
    const auto normed = norm_by_definition(tensor.head_before(1, head), 1e-6, of_head);
    const RotatedHead wanted = rotate_by_definition(rotary, std::span(positions).subspan(1), normed);
    const auto found = tensor.head_after(1, head);
    for (std::uint64_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(found[d], wanted.values[d], rope_bound(tensor.tensor, wanted.values[d], wanted.lengths[d]));
    }
  }
}

}  // namespace
}  // namespace rota::test
