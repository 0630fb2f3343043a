#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "harness/reserved.h"
#include "harness/worker_scratch.h"
#include "ops/rope/rope.h"
#include "ops/rope/rope_reference.h"

// The CPU kernel without a device: every instruction set, every angle, and offsets beyond 32 bits.

namespace rota::ops {
namespace {

using test::plain_tensor;

// A kernel's own view of one call, without a device.
struct DirectCall {
  std::vector<std::byte> from, to;
  std::vector<std::uint32_t> positions;
  PairTable pairs;
  std::vector<float> weight;
  RopeLaunch launch;

  void run(core::Isa isa) {
    rope_cpu({.constants = {launch.constants.values.data(), launch.constants.count},
              .params = &launch.params,
              .bound = {from.data(), to.data(), reinterpret_cast<std::byte*>(positions.data()),
                        reinterpret_cast<std::byte*>(pairs.words.data()), reinterpret_cast<std::byte*>(weight.data())},
              .first_item = 0,
              .last_item = launch.dispatch.items,
              .scratch = test::worker_scratch()},
             isa);
  }
};

TEST(RopeCpu, GivesTheSameBitsWithEveryInstructionSet) {
  std::mt19937_64 random(11);
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      for (const std::uint64_t rope_dim : {2U, 10U, 32U, 46U, 64U}) {
        for (const Pairing pairing : {Pairing::halves, Pairing::interleaved}) {
          for (const int norm : {0, 1, 2}) {
            const Shape shape{.tokens = 3, .heads = 2, .dim = 67};
            RopeTensor tensor{.from = View::token_major({}, from.dtype, shape),
                              .to = MutView::token_major({}, to.dtype, shape)};
            if (norm > 0) tensor.norm = HeadNorm{.epsilon = 1e-6, .weight_offset = 1};
            if (norm > 1) tensor.norm->weight = View::token_major({}, DType::f32, {.tokens = 1, .heads = 1, .dim = 67});
            DirectCall call{.from = std::vector<std::byte>(3 * 2 * 67 * from.bytes),
                            .to = std::vector<std::byte>(3 * 2 * 67 * to.bytes),
                            .positions = {1, 70000, 2147483647},
                            .pairs = pair_table({.pairing = pairing, .theta = 1e4}, rope_dim).value(),
                            .weight = std::vector<float>(67, 0.5F),
                            .launch = {.constants = {}, .dispatch = {}, .params = {}}};
            for (std::uint64_t i = 0; i < 3 * 2 * 67; ++i) {
              test::save_bits(call.from, from.dtype, i,
                              test::bits_of(test::random_value(random, from.dtype), from.dtype));
            }
            RopePlan::Tensor bound{.from = {}, .to = {}, .weight = {}};
            if (norm > 1) bound.weight = runtime::Bindable{};
            call.launch = choose_rope(tensor, bound, call.pairs);
            call.run(core::Isa::baseline);
            const std::vector<std::byte> wanted = call.to;
            for (const core::Isa isa : core::kIsas) {
              if (!core::runs_here(isa)) continue;
              std::ranges::fill(call.to, std::byte{0x5a});
              call.run(isa);
              ASSERT_EQ(call.to, wanted) << core::name_of(isa) << ", " << from.name << " to " << to.name << ", "
                                         << rope_dim;
            }
          }
        }
      }
    }
  }
}

TEST(RopeCpu, TurnsThePointOneByEveryAngleExactlyEnough) {
  // Every pair holds (1, 0) at position 1: its cosine and sine come out as they are.
  constexpr std::uint32_t kPairs = 2048;
  const Shape shape{.tokens = 1, .heads = 1, .dim = 2 * kPairs};
  const Rotary rotary{.pairing = Pairing::halves, .theta = 1e4};
  DirectCall call{.from = std::vector<std::byte>(shape.dim * 4),
                  .to = std::vector<std::byte>(shape.dim * 4),
                  .positions = {1},
                  .pairs = pair_table(rotary, shape.dim).value(),
                  .weight = {},
                  .launch = {.constants = {}, .dispatch = {}, .params = {}}};
  call.launch = choose_rope(plain_tensor(DType::f32, shape), {.from = {}, .to = {}, .weight = {}}, call.pairs);
  for (std::uint32_t p = 0; p < kPairs; ++p) {
    test::save_bits(call.from, DType::f32, p, std::bit_cast<std::uint32_t>(1.0F));
  }
  std::mt19937_64 random(3);
  double worst = 0;
  for (int round = 0; round < 512; ++round) {
    for (std::uint32_t p = 0; p < kPairs; ++p) {
      // Near every eighth of a turn, where quadrants and polynomials meet, and anywhere.
      const auto near_edge = static_cast<std::uint32_t>((random() % 8 << 29) + random() % 64 - 32);
      call.pairs.words[std::size_t{kTurnsHigh} * kPairs + p] =
          p % 4 == 0 ? near_edge : static_cast<std::uint32_t>(random());
    }
    call.run(core::best_isa());
    for (std::uint32_t p = 0; p < kPairs; ++p) {
      const std::uint64_t turns =
          call.pairs.column(kTurnsLow)[p] | (std::uint64_t{call.pairs.column(kTurnsHigh)[p]} << 32);
      const test::Real angle = std::ldexp(static_cast<test::Real>(turns), -64) * 2 * std::numbers::pi_v<test::Real>;
      const auto found = [&](std::uint64_t at) {
        return test::value_of(test::load_bits(call.to, DType::f32, at), DType::f32);
      };
      worst = std::max({worst, std::fabs(found(p) - static_cast<double>(std::cos(angle))),
                        std::fabs(found(p + kPairs) - static_cast<double>(std::sin(angle)))});
    }
  }
  // Three roundings of an angle of at most pi / 4, and three more of a cosine or sine of at most 1.
  EXPECT_LE(worst, 3 * (std::numbers::pi / 4 + 1) * 0x1p-24);
  EXPECT_GT(worst, 1e-8) << "a test that sees no rounding at all looks at nothing";
}

TEST(RopeCpu, ReachesBeyondFourGigabytes) {
  constexpr std::uint64_t kFar = (1ULL << 32) + 6;
  constexpr std::uint64_t kBytes = (kFar + 2) * 4;
  const test::Reserved from(kBytes);
  const test::Reserved to(kBytes);
  const std::array<float, 2> point{1, 2};
  std::memcpy(from.data() + kFar * 4, point.data(), sizeof(point));
  PairTable pairs = pair_table({.pairing = Pairing::halves, .theta = 1e4}, 2).value();
  RopeTensor tensor = plain_tensor(DType::f32, {.tokens = 2, .heads = 1, .dim = 2});
  tensor.from.token_stride = tensor.to.token_stride = kFar;
  const RopeLaunch launch = choose_rope(tensor, {.from = {}, .to = {}, .weight = {}}, pairs);
  std::array<std::uint32_t, 2> positions{0, 0};
  rope_cpu({.constants = {launch.constants.values.data(), launch.constants.count},
            .params = &launch.params,
            .bound = {from.data(), to.data(), reinterpret_cast<std::byte*>(positions.data()),
                      reinterpret_cast<std::byte*>(pairs.words.data())},
            .first_item = 0,
            .last_item = 2,
            .scratch = test::worker_scratch()});
  EXPECT_EQ(std::memcmp(to.data() + kFar * 4, point.data(), sizeof(point)), 0);
}

}  // namespace
}  // namespace rota::ops
