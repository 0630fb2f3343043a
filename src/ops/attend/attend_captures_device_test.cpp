#include <array>
#include <cmath>
#include <string>

#include "harness/attend_on_device.h"
#include "harness/source_file.h"

// Attention over recorded queries, keys and values of a real model: tests/captures. Each of its heads is a kv head
// here.

namespace rota::test {
namespace {

constexpr std::array kHeads{"L00_g0", "L00_g2", "L10_g0", "L10_g2", "L20_g0", "L20_g2", "L29_g0", "L29_g2"};
constexpr std::uint64_t kTokens = 512, kDim = 64, kGroup = 3;
constexpr std::uint64_t kQueryTokens = 8, kTokensApart = 16;  // the newest, and others before it

Numbers recorded(const std::string& what, std::uint64_t group) {
  Numbers numbers{kHeads.size() * group, kDim, std::vector<float>(kTokens * kHeads.size() * group * kDim)};
  const std::uint64_t size = group * kDim;  // of one file's token
  for (std::size_t head = 0; head < kHeads.size(); ++head) {
    const auto values = read_halves(fmt::format("tests/captures/{}_{}.npy", kHeads[head], what));
    for (std::uint64_t at = 0; at < kTokens * size; ++at) {
      numbers.values[(at / size * kHeads.size() + head) * size + at % size] = f32_from_f16(values.at(at));
    }
  }
  return numbers;
}

class AttendRecorded : public AttendOnDevice {
 protected:
  // The sequence as it was at each of the query tokens, but for what is sealed.
  KvView stored_as(const KvCodec& codec) {
    const Case what{
        .k = codec, .v = codec, .kv_heads = kHeads.size(), .group = kGroup, .lengths = {kTokens}, .page = 128};
    KvView kv = some_of(lay_out(what, {recorded("k", 1)}, {recorded("v", 1)}), std::array<std::size_t, kQueryTokens>{});
    for (std::uint64_t i = 0; i < kQueryTokens; ++i) kv.lengths.edit()[i] -= (kQueryTokens - 1 - i) * kTokensApart;
    return kv;
  }

  Asked newest_queries() {
    View q = view_of(recorded("q", kGroup)).slice(kTokens - 1 - (kQueryTokens - 1) * kTokensApart, kQueryTokens);
    q.token_stride *= kTokensApart;
    return {.q = q};
  }
};

TEST_F(AttendRecorded, ErrsAsTheWidthDoes) {
  struct Width {
    KvCodec codec;
    double error;  // as measured; every device seals the same bytes
  };
  const Asked asked = newest_queries();
  const std::vector<QueryVector> vectors = all_vectors(asked);
  const KvView exact = stored_as(DType::f16);
  const auto wanted = Definition(exact).results(call_of(exact, asked), vectors);
  for (const auto& [codec, measured] :
       std::vector<Width>{{DType::f16, 0}, {turbo(8), 0.00201}, {turbo(4), 0.0284}, {turbo(3), 0.0608}}) {
    SCOPED_TRACE(describe(codec));
    const Answer found = expect_defined(stored_as(codec), asked);
    double error = 0;
    double energy = 0;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      for (std::uint64_t d = 0; d < kDim; ++d) {
        error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
        energy += std::pow(wanted[i].out[d], 2);
      }
    }
    EXPECT_NEAR(std::sqrt(error / energy), measured, std::max(0.1 * measured, kTolerance));
  }
}

TEST_F(AttendRecorded, TakesSoftCapsOfAnySize) {
  const KvView kv = stored_as(DType::f16);
  Asked asked = newest_queries();
  for (const double cap : {1e-3, 30.0, 1e4, 1e30}) {
    SCOPED_TRACE(cap);
    asked.soft_cap = cap;
    expect_defined(kv, asked);
  }
}

}  // namespace
}  // namespace rota::test
