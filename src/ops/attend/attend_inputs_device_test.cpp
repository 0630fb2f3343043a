#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "harness/attend_on_device.h"

// What numbers keys, values and queries may be, what else a call may ask for, and many of everything.

namespace rota::test {
namespace {

class AttendInputs : public AttendOnDevice {
 protected:
  static Case both(bool sealed, Case what) {
    if (sealed) what.k = what.v = turbo(4);
    return what;
  }
};

TEST_F(AttendInputs, OfAnyDistribution) {
  const auto laplace = [](std::mt19937_64& from, std::uint64_t) {
    return std::exponential_distribution<double>()(from) * (from() % 2 == 0 ? 1 : -1);
  };
  const auto student = [](std::mt19937_64& from, std::uint64_t) {
    return std::clamp(std::student_t_distribution<double>(3)(from), -3e4, 3e4);
  };
  const auto constant = [](std::mt19937_64&, std::uint64_t) { return 0.75; };
  const auto zero = [](std::mt19937_64& from, std::uint64_t) { return from() % 2 == 0 ? 0.0 : -0.0; };
  const auto one_huge = [](std::mt19937_64& from, std::uint64_t position) {
    return std::normal_distribution<double>(0, position == 100 ? 1000 : 1)(from);
  };
  const auto denormal = [](std::mt19937_64& from, std::uint64_t) {
    return std::normal_distribution<double>(0, 0x1p-20)(from);
  };
  struct Kind {
    std::string_view name;
    Draw k, v;
    bool large;
  };
  const std::array kinds{Kind{"gaussian", gaussian(), gaussian(), false},
                         Kind{"laplace", laplace, laplace, false},
                         Kind{"student", student, student, true},
                         Kind{"one huge key", one_huge, gaussian(), true},
                         Kind{"one huge value", gaussian(), one_huge, true},
                         Kind{"constant", constant, constant, true},
                         Kind{"zeros", zero, zero, false},
                         Kind{"constant keys and zeros", constant, zero, true},
                         Kind{"denormals", denormal, denormal, false},
                         Kind{"logits of 10,000", gaussian(1e4), gaussian(), true},
                         Kind{"huge values", gaussian(), gaussian(1e4), false}};
  for (const Kind& kind : kinds) {
    for (const bool sealed : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, sealed {}", kind.name, sealed));
      logits_are_large = kind.large;
      expect_defined(both(sealed, {.kv_heads = 2,
                                   .group = 4,
                                   .lengths = {330, 64},
                                   .query_tokens = {17, 3},
                                   .k_draw = kind.k,
                                   .v_draw = kind.v}));
    }
  }
}

// Products of small integers are exact, so that only log2(e) and the power are rounded: a logit of 10,000 is off by
// 2 * 2^-24 of itself, and a weight by twice that, and a little.
TEST_F(AttendInputs, NeighboursAmongLogitsOfTenThousand) {
  for (const double sign : {1.0, -1.0}) {
    const Draw integer = [sign](std::mt19937_64& from, std::uint64_t) {
      return sign * (156 + static_cast<double>(from() % 2));
    };
    const Case what{.head_dim = 16, .value_dim = 64, .lengths = {300}, .query_tokens = {9}, .k_draw = integer};
    const Stored stored = store_sequences(what);
    const Numbers ones{8, 16, std::vector<float>(9 * 8 * 16, 4)};
    const Asked asked{.q = view_of(ones), .query_tokens = what.query_tokens, .scale = 1};
    const Answer found = run(stored.kv, asked);
    const auto vectors = all_vectors(asked);
    const auto wanted = Definition(stored.kv).results(call_of(stored.kv, asked), vectors);
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      ASSERT_NEAR(wanted[i].largest_logit, 1e4, 200);
      double error = 0;
      for (std::uint64_t d = 0; d < 64; ++d) error += std::pow(found.at(vectors[i], d) - wanted[i].out[d], 2);
      EXPECT_LE(std::sqrt(error),
                (std::expm1(4 * 0x1p-24 * wanted[i].largest_logit) + kTolerance) * wanted[i].weighed_values);
      EXPECT_NEAR(found.log_sum_exp_at(vectors[i]), wanted[i].log_sum_exp, 4 * 0x1p-24 * wanted[i].largest_logit);
    }
  }
}

TEST_F(AttendInputs, SoftCapSinkLogitsSlopesAloneAndTogether) {
  for (const bool sealed : {false, true}) {
    const Case what = both(sealed, {.kv_heads = 2, .group = 4, .lengths = {330, 64, 1}, .query_tokens = {17, 3, 1}});
    const Stored stored = store_sequences(what);
    const View q = queries(what);
    const View sinks = per_head({0, 3, -3, 6, 1, -40, 40, 2});
    const View slopes = per_head({0.5F, 0.25F, 0.125F, 0, 0.0625F, 1, -0.03125F, 0.01F});
    std::set<std::vector<std::byte>> different;
    for (const unsigned which : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
      SCOPED_TRACE(fmt::format("sealed {}, options {}", sealed, which));
      Asked asked{.q = q, .query_tokens = what.query_tokens};
      if ((which & 1U) != 0) asked.soft_cap = 1.5;
      if ((which & 2U) != 0) asked.sink_logits = sinks;
      if ((which & 4U) != 0) asked.alibi_slopes = slopes;
      different.insert(expect_defined(stored.kv, asked).out);
    }
    EXPECT_EQ(different.size(), 8U);
  }
}

TEST_F(AttendInputs, SinkLogitsAndSlopesOfEveryTypeAnywhere) {
  const Case what{.kv_heads = 2, .group = 4, .lengths = {70}, .query_tokens = {2}};
  const Stored stored = store_sequences(what);
  for (const DTypeInfo& dtype : kDTypes) {
    Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Numbers numbers = draw(1, 24, 1, gaussian());
    View spread = view_of(numbers, dtype.dtype);
    spread.shape.heads = 8;
    spread.offset = 1;
    spread.head_stride = 3;
    asked.sink_logits = spread;
    spread.offset = 2;
    asked.alibi_slopes = spread;
    expect_defined(stored.kv, asked);
  }
}

TEST_F(AttendInputs, AQueryWithoutKeysIsZerosAndMinusInfinity) {
  for (const bool sealed : {false, true}) {
    const Case what = both(sealed, {.lengths = {200, 0, 5}, .query_tokens = {2, 3, 1}});
    const Stored stored = store_sequences(what);
    Asked asked{.q = queries(what), .query_tokens = what.query_tokens, .mask = Mask::none};
    const Answer found = expect_defined(stored.kv, asked);
    for (std::uint64_t token = 2; token < 5; ++token) {
      for (std::uint64_t head = 0; head < 8; ++head) {
        for (std::uint64_t d = 0; d < 64; ++d) EXPECT_EQ(found.at({token, head}, d), 0);
        EXPECT_EQ(found.log_sum_exp_at({token, head}), -std::numeric_limits<double>::infinity());
      }
    }
    // Of a sink alone it is the sink's.
    asked.sink_logits = per_head({1, 2, 3, 4, 5, 6, 7, 8});
    const Answer with_sinks = expect_defined(stored.kv, asked);
    EXPECT_NEAR(with_sinks.log_sum_exp_at({3, 4}), 5, kTolerance);

    // No query tokens at all are no error.
    const Asked none{.q = asked.q.slice(0, 0), .query_tokens = {0, 0, 0}};
    const Attend call = call_of(stored.kv, none);
    Attend nothing = call;
    nothing.out.buffer = asked.q.buffer;
    EXPECT_OK(run_on(device, [&](Encoder& encoder) { attend(encoder, nothing); }));
  }
}

TEST_F(AttendInputs, ManySequencesOfDifferentLengths) {
  Case what{.k = turbo(4), .v = turbo(4), .kv_heads = 1, .group = 8, .lengths = {}, .query_tokens = {}};
  for (std::uint64_t i = 0; i < 256; ++i) {
    what.lengths.push_back(i % 7 == 0 ? 1 + i : 1 + random() % 500);
    what.query_tokens.push_back(1 + random() % std::min<std::uint64_t>(what.lengths.back(), 3));
  }
  std::ranges::shuffle(what.lengths, random);
  for (std::size_t i = 0; i < 256; ++i) what.query_tokens[i] = std::min(what.query_tokens[i], what.lengths[i]);
  expect_defined(what);
}

TEST_F(AttendInputs, ManyQueryHeads) {
  expect_defined(
      {.k = turbo(4), .v = turbo(4), .kv_heads = 8, .group = 16, .lengths = {200, 70}, .query_tokens = {2, 1}});
  expect_defined({.k = turbo(4), .v = turbo(4), .kv_heads = 128, .group = 1, .lengths = {130}, .query_tokens = {8}});
}

// Ten times among other work, from threads whose submissions come in any order.
TEST_F(AttendInputs, TheSameBytesEveryTime) {
  for (const bool sealed : {false, true}) {
    const Case what = both(sealed, {.kv_heads = 2, .group = 4, .lengths = {700, 64, 7}, .query_tokens = {5, 3, 1}});
    const Stored stored = store_sequences(what);
    const Asked asked{.q = queries(what), .query_tokens = what.query_tokens};
    const Case other_case = both(!sealed, {.kv_heads = 3, .group = 8, .lengths = {300}});
    const Stored other = store_sequences(other_case);
    const Asked other_asked{.q = queries(other_case), .query_tokens = other_case.query_tokens};
    const Answer wanted = run(stored.kv, asked);
    const Answer other_wanted = run(other.kv, other_asked);
    std::atomic<int> wrong = 0;
    const auto repeat = [&](unsigned seed) {
      std::mt19937_64 drawn(seed);
      Device mine = device;
      for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(drawn() % 2000));
        if (drawn() % 2 == 0 && !(run(mine, other.kv, other_asked) == other_wanted)) ++wrong;
        if (!(run(mine, stored.kv, asked) == wanted)) ++wrong;
      }
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 2; ++seed) threads.emplace_back(repeat, seed);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

// Several calls in one submission share scratch memory; none waits for the host between.
TEST_F(AttendInputs, CallsOfOneSubmissionDoNotDisturbEachOther) {
  const Case what{
      .k = turbo(4), .v = turbo(4), .kv_heads = 2, .group = 4, .lengths = {300, 64}, .query_tokens = {5, 3}};
  const Stored stored = store_sequences(what);
  std::vector<Asked> asked;
  std::vector<Answer> wanted;
  for (int i = 0; i < 6; ++i) {
    asked.push_back({.q = queries(what), .query_tokens = what.query_tokens, .log_sum_exp = false});
    wanted.push_back(run(stored.kv, asked.back()));
  }
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<Guarded> outs;
    Encoder encoder = device.encoder();
    for (const Asked& one : asked) {
      outs.emplace_back(device, 8 * 8 * 64, DType::f32);
      Attend call = call_of(stored.kv, one);
      call.out.buffer = outs.back().buffer;
      call.out.offset = outs.back().offset;
      attend(encoder, call);
    }
    ASSERT_OK(std::move(encoder).submit().value().wait());
    for (std::size_t i = 0; i < asked.size(); ++i) EXPECT_TRUE(outs[i].read() == wanted[i].out);
  }
}

}  // namespace
}  // namespace rota::test
