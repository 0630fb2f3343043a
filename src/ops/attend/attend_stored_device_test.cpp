#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/isa.h"
#include "harness/attend_on_device.h"

// Sealed keys and values multiplied as bytes, where a device does so.

namespace rota::test {
namespace {

class AttendStored : public AttendOnDevice {
 protected:
  struct Errors {
    double arithmetic = 0, codec = 0;  // squares, over all vectors
  };

  // Of what a call gives against f64 over what is stored, and of that against f64 over what was to be stored.
  Errors errors_of(const Case& what, Asked asked) {
    const Stored stored = store_sequences(what);
    const KvView exact = lay_slots({.dtype = DType::f32}, stored.k, stored.v);
    asked.arithmetic = Arithmetic::stored;
    asked.query_tokens = what.query_tokens;
    const Answer found = run(stored.kv, asked);
    const auto vectors = all_vectors(asked);
    const auto restored = Definition(stored.kv).results(call_of(stored.kv, asked), vectors);
    const auto original = Definition(exact).results(call_of(exact, asked), vectors);
    Errors errors;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      for (std::uint64_t d = 0; d < restored[i].out.size(); ++d) {
        errors.arithmetic += std::pow(found.at(vectors[i], d) - restored[i].out[d], 2);
        errors.codec += std::pow(restored[i].out[d] - original[i].out[d], 2);
      }
    }
    return errors;
  }
};

// Sets that differ in what they do with bytes alone, after the one that they are compared with.
#if defined(__x86_64__)
constexpr std::array kAlike{core::Isa::avx512vnni, core::Isa::avx512vbmi, core::Isa::amx};
#elif defined(__aarch64__)
constexpr std::array kAlike{core::Isa::baseline, core::Isa::dotprod, core::Isa::i8mm};
#else
constexpr std::array kAlike{core::Isa::baseline};
#endif

// Where levels come from, and what multiplies them: their sums are integers.
TEST_F(AttendStored, LookUpsAndProductsOfBytesChangeNoBit) {
  struct Vectors {
    std::uint32_t group, tokens;
  };
  const core::Isa most = core::best_isa();
  if (!on_cpu() || most <= kAlike.front()) GTEST_SKIP() << "there are not two of them on this device";
  for (const std::uint32_t dim : {16U, 48U, 80U, 128U, 192U, 1024U}) {
    for (const std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
      Case what{
          .k = turbo(bits), .v = turbo(bits == 8 ? 4 : 8 - bits), .head_dim = dim, .value_dim = dim, .lengths = {300}};
      const Stored stored = store_sequences(what);
      for (const auto& [group, tokens] : {Vectors{1, 1}, Vectors{2, 1}, Vectors{4, 1}, Vectors{8, 1}, Vectors{11, 1},
                                          Vectors{12, 2}, Vectors{16, 2}}) {
        what.group = group;
        what.query_tokens = {tokens};
        const Asked asked{.q = queries(what), .query_tokens = what.query_tokens, .arithmetic = Arithmetic::stored};
        core::limit_isa(kAlike.front());
        const Answer expected = run(stored.kv, asked);
        for (const core::Isa isa : kAlike) {
          if (isa > most) continue;
          core::limit_isa(isa);
          EXPECT_TRUE(run(stored.kv, asked) == expected)
              << core::name_of(isa) << ", " << bits << " bits, heads of " << dim << ", " << group << " to a group";
        }
        core::limit_isa(most);
      }
    }
  }
}

TEST_F(AttendStored, BytesAddLessThanATenthOfTheCodecsError) {
  if (!on_cpu()) GTEST_SKIP() << "GPUs have no other arithmetic than f32: AttendValues has how much it errs";
  struct Heads {
    std::uint32_t k_dim, v_dim, group;
  };
  for (const Heads& heads : {Heads{128, 128, 4}, Heads{64, 64, 7}, Heads{80, 48, 1}, Heads{256, 112, 2}}) {
    for (const std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
      Case what{.k = turbo(bits),
                .v = turbo(bits),
                .head_dim = heads.k_dim,
                .value_dim = heads.v_dim,
                .kv_heads = 2,
                .group = heads.group,
                .lengths = {700, 1100},
                .query_tokens = {1, 3}};
      const Errors errors = errors_of(what, {.q = queries(what)});
      const double share = std::sqrt(errors.arithmetic / errors.codec);
      RecordProperty(fmt::format("share_{}_{}_{}", bits, heads.k_dim, heads.group), fmt::format("{:.4f}", share));
      EXPECT_LT(share, 0.1) << bits << " bits, heads of " << heads.k_dim << " and " << heads.v_dim;
    }
  }
}

// One key that takes nearly all of the weight, and logits of common size: both are a cache's everyday.
TEST_F(AttendStored, PeaksAreAsPreciseAsPlains) {
  for (const double scale : {0.01, 0.5, 2.0}) {
    for (const std::uint32_t bits : {4U, 8U}) {
      const Case what{.k = turbo(bits),
                      .v = turbo(bits),
                      .head_dim = 128,
                      .value_dim = 128,
                      .kv_heads = 2,
                      .group = 4,
                      .lengths = {900},
                      .query_tokens = {2}};
      const Errors errors = errors_of(what, {.q = queries(what), .scale = scale});
      EXPECT_LT(std::sqrt(errors.arithmetic / errors.codec), 0.1) << bits << " bits, scale " << scale;
    }
  }
}

// One query token over 600 keys of one head, sealed at so many bits.
Case one_query(std::uint32_t bits, std::uint32_t group) {
  return {.k = turbo(bits),
          .v = turbo(bits),
          .head_dim = 64,
          .value_dim = 64,
          .kv_heads = 1,
          .group = group,
          .lengths = {600},
          .query_tokens = {1}};
}

TEST_F(AttendStored, QueriesOfNothingAndQueriesThatAreNotFinite) {
  const Case what = one_query(4, 4);
  const Stored stored = store_sequences(what);
  Numbers q = draw(1, 4, 64, gaussian());
  const Answer plain = run(stored.kv, {.q = view_of(q), .arithmetic = Arithmetic::stored});
  std::fill_n(q.values.begin() + 64, 64, 0.0F);
  q.values[2 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  q.values[3 * 64 + 60] = std::numeric_limits<float>::infinity();
  const Asked asked{.q = view_of(q), .arithmetic = Arithmetic::stored};
  const Answer found = run(stored.kv, asked);
  const auto wanted = Definition(stored.kv).results(call_of(stored.kv, asked), all_vectors(asked));
  for (std::uint64_t d = 0; d < 64; ++d) {
    EXPECT_EQ(found.at({0, 0}, d), plain.at({0, 0}, d)) << "other heads' queries change nothing";
    EXPECT_NEAR(found.at({0, 1}, d), wanted[1].out[d], 0.01) << "all keys weigh the same";
    EXPECT_TRUE(std::isnan(found.at({0, 2}, d)) && std::isnan(found.at({0, 3}, d)));
  }
}

// So small that the inverse of the largest number is infinite: all keys weigh the same, in bytes as in f32.
TEST_F(AttendStored, TinyQueriesDoNotOverflow) {
  for (const std::uint32_t bits : {2U, 4U, 6U, 8U}) {
    const Case what = one_query(bits, 4);
    const Stored stored = store_sequences(what);
    const Numbers common = draw(1, 4, 64, gaussian());
    for (const float size : {1e-30F, 1e-34F, 1e-36F, 1e-37F, 1e-38F, 1e-40F, 1e-44F}) {
      Numbers q = common;
      for (float& number : q.values) number *= size;
      const View view = view_of(q);
      const Answer bytes = run(stored.kv, {.q = view, .scale = 1.0, .arithmetic = Arithmetic::stored});
      const Answer f32 = run(stored.kv, {.q = view, .scale = 1.0, .arithmetic = Arithmetic::f32});
      for (std::uint64_t head = 0; head < 4; ++head) {
        EXPECT_FLOAT_EQ(static_cast<float>(bytes.log_sum_exp_at({0, head})), std::log(600.0F));
        for (std::uint64_t d = 0; d < 64; ++d) {
          ASSERT_NEAR(bytes.at({0, head}, d), f32.at({0, head}, d), 0.01) << bits << " bits, queries of " << size;
        }
      }
    }
  }
}

// The weights of far tiles are tiny, too: they add nothing, and nothing overflows.
TEST_F(AttendStored, TinyWeightsAddNothing) {
  for (const std::uint32_t bits : {4U, 8U}) {
    Case what = one_query(bits, 1);
    // Logits of the first page are higher than all others by 64 * 1.7: their weights are about 2^-110 to 2^-125.
    what.k_draw = [](std::mt19937_64& from, std::uint64_t position) {
      return (position < 64 ? 1.0 : -0.7) + std::normal_distribution<double>(0, 0.01)(from);
    };
    const Stored stored = store_sequences(what);
    const View q = view_of(Numbers{1, 64, std::vector<float>(64, 0.75F)});
    const Answer bytes = run(stored.kv, {.q = q, .scale = 1.0, .arithmetic = Arithmetic::stored});
    const Answer f32 = run(stored.kv, {.q = q, .scale = 1.0, .arithmetic = Arithmetic::f32});
    EXPECT_NEAR(bytes.log_sum_exp_at({0, 0}), f32.log_sum_exp_at({0, 0}), 0.1);
    for (std::uint64_t d = 0; d < 64; ++d) ASSERT_NEAR(bytes.at({0, 0}, d), f32.at({0, 0}, d), 0.05) << bits << " bits";
  }
}

}  // namespace
}  // namespace rota::test
