#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "ops/merge/merge_reference.h"

namespace rota::test {
namespace {

using ops::kFirstLog;
using ops::kFirstOut;
using ops::kMergedLog;
using ops::kMergedOut;
using ops::kMergeViews;
using ops::kSecondLog;
using ops::kSecondOut;

using Types = std::array<DType, kMergeViews>;

constexpr Types all_of(DType dtype) { return {dtype, dtype, dtype, dtype, dtype, dtype}; }

class MergeOnDevice : public OnDevice {
 protected:
  // Merges, and holds the result against the definition.
  MergeUnderTest expect_merged(const MergeSpec& spec) {
    MergeUnderTest tested(device, random, spec);
    EXPECT_OK(tested.run(device));
    EXPECT_LE(tested.worst_error(), 1);
    return tested;
  }

  std::mt19937_64 random{20270203};
};

TEST_F(MergeOnDevice, ServesAllDTypes) {
  constexpr auto kTypes = kDTypes.size();
  for (std::size_t i = 0; i < kTypes * kTypes * kTypes; ++i) {
    const auto type = [](std::size_t number) { return kDTypes[number % kTypes].dtype; };
    // The logarithms' types take all combinations as well, in another order.
    const std::size_t j = i * 5 + 7;
    const Types types{type(i), type(i / 3), type(i / 9), type(j), type(j / 3), type(j / 9)};
    SCOPED_TRACE(i);
    expect_merged({.shape = {.tokens = 9, .heads = 3, .dim = 18}, .types = types});
  }
}

TEST_F(MergeOnDevice, ServesEveryHeadSize) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const std::uint64_t dim : {1U, 2U, 3U, 16U, 80U, 129U, 576U, 4096U}) {
      SCOPED_TRACE(dim);
      expect_merged({.shape = {.tokens = 7, .heads = 5, .dim = dim}, .types = all_of(dtype)});
    }
  }
}

TEST_F(MergeOnDevice, ServesAnyLayout) {
  constexpr Shape kShape{.tokens = 13, .heads = 3, .dim = 6};
  const Types mixed{DType::bf16, DType::f32, DType::f16, DType::f16, DType::f32, DType::bf16};
  const MergeLayout head_major{6, 6 * 13, 1};
  const MergeLayout gaps{50, 12, 1};
  const MergeLayout odd_gaps{27, 7, 1};
  const MergeLayout dim_last{1, 13 * 6, 13};  // a head's elements are 13 apart
  const MergeLayout log_gaps{15, 4, 1};
  const MergeLayout log_head_major{1, 13, 1};
  for (const Types& types : {mixed, all_of(DType::f16)}) {
    for (const std::uint64_t guard_elements : {96U, 97U}) {
      const auto expect = [&](const std::array<std::optional<MergeLayout>, kMergeViews>& layouts) {
        expect_merged({.shape = kShape, .types = types, .layouts = layouts, .guard_elements = guard_elements});
      };
      expect({head_major, gaps, odd_gaps, log_gaps, log_head_major, {}});
      expect({odd_gaps, dim_last, gaps, log_head_major, {}, log_gaps});
      expect({gaps, head_major, dim_last, {}, log_gaps, log_head_major});
      expect({dim_last, odd_gaps, head_major, {}, {}, log_head_major});
    }
  }
}

TEST_F(MergeOnDevice, ReadsOnePartForAllTokens) {
  const MergeLayout out_of_all{0, 24, 1};
  const MergeLayout log_of_all{0, 1, 1};
  expect_merged({.shape = {.tokens = 4, .heads = 13, .dim = 24},
                 .types = all_of(DType::f16),
                 .layouts = {out_of_all, {}, {}, log_of_all, {}, {}}});
}

TEST_F(MergeOnDevice, InPlaceGivesTheBitsOfElsewhere) {
  const Types mixed{DType::f16, DType::f16, DType::f16, DType::bf16, DType::bf16, DType::bf16};
  for (const Types& types : {mixed, all_of(DType::f32)}) {
    // Odd sizes: neighbours of different rows and lanes share a word.
    for (const std::uint64_t dim : {1U, 35U, 130U}) {
      MergeSpec spec{.shape = {.tokens = 15, .heads = 7, .dim = dim}, .types = types};
      const MergeUnderTest elsewhere = expect_merged(spec);
      for (const std::uint32_t out_in : {kFirstOut, kSecondOut, kMergedOut}) {
        for (const std::uint32_t log_in : {kFirstLog, kSecondLog, kMergedLog}) {
          if (out_in == kMergedOut && log_in == kMergedLog) continue;
          SCOPED_TRACE(testing::Message() << dim << ": " << out_in << ", " << log_in);
          if (out_in != kMergedOut) spec.out_in = out_in;
          if (log_in != kMergedLog) spec.log_in = log_in;
          MergeUnderTest tested(device, random, spec);
          for (std::uint32_t index = 0; index < kMergeViews; ++index) {
            const bool is_result = index == kMergedOut || index == kMergedLog;
            if (!is_result) tested.views[index]->before = elsewhere.views[index]->before;
          }
          tested.write();
          ASSERT_OK(tested.run(device));
          EXPECT_LE(tested.worst_error(), 1);
          EXPECT_EQ(tested.out(), elsewhere.out());
          EXPECT_EQ(tested.log(), elsewhere.log());
          spec.out_in = spec.log_in = {};
        }
      }
    }
  }
}

TEST_F(MergeOnDevice, BothPartsMayBeOneAndTheResultToo) {
  MergeUnderTest tested(device, random, {.shape = {.tokens = 9, .heads = 3, .dim = 33}, .types = all_of(DType::f16)});
  Merge call = tested.call();
  call.second = call.first;
  call.out = tested.views[kFirstOut]->view;
  call.log_sum_exp = tested.views[kFirstLog]->view;
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { merge(encoder, call); }));
  const auto outs = tested.views[kFirstOut]->read();
  const auto logs = tested.views[kFirstLog]->read();
  for (std::uint64_t row = 0; row < tested.rows(); ++row) {
    const double log_sum_exp = tested.before(kFirstLog, row);
    const MergedRow wanted(log_sum_exp, log_sum_exp);
    if (!std::isinf(log_sum_exp)) {
      EXPECT_NEAR(tested.views[kFirstLog]->value(logs, row), wanted.log, log_bound(DType::f16, wanted.log));
    }
    for (std::uint64_t d = 0; d < 33; ++d) {
      const double value = std::isinf(log_sum_exp) ? 0 : tested.before(kFirstOut, row, d);
      ASSERT_NEAR(tested.views[kFirstOut]->value(outs, row, d), value, merge_bound(DType::f16, wanted, value, value))
          << row << ", " << d;
    }
  }
}

TEST_F(MergeOnDevice, ServesLogarithmsAtTheEdgesOfF32) {
  constexpr double kMost = 0x1.fffffep127;
  constexpr std::array kLogs{std::pair{kMost, -kMost}, std::pair{-kMost, kMost},       std::pair{kMost, kMost},
                             std::pair{-kMost, 0.0},   std::pair{0x1p-149, -0x1p-149}, std::pair{-0.0, 0.0},
                             std::pair{0.0, -103.5},   std::pair{-104.0, 0.0},         std::pair{-87.5, 0.0}};
  MergeUnderTest tested(device, random, {.shape = {.tokens = kLogs.size(), .heads = 1, .dim = 20}});
  for (std::uint64_t row = 0; row < kLogs.size(); ++row) {
    tested.views[kFirstLog]->set(row, 0, kLogs[row].first);
    tested.views[kSecondLog]->set(row, 0, kLogs[row].second);
    for (std::uint64_t d = 0; d < 20; ++d) {
      for (const std::uint32_t out : {kFirstOut, kSecondOut})
        tested.views[out]->set(row, d, random_value(random, DType::f32));
    }
  }
  tested.write();
  ASSERT_OK(tested.run(device));
  EXPECT_LE(tested.worst_error(), 1);
}

TEST_F(MergeOnDevice, ALogarithmThatIsNoneSpoilsItsRowOnly) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MergeUnderTest tested(device, random, {.shape = {.tokens = 13, .heads = 3, .dim = 10}, .types = all_of(dtype)});
    ASSERT_OK(tested.run(device));
    const auto sound_outs = tested.out();
    const auto sound_logs = tested.log();
    constexpr std::array kSpoilt{std::pair{3U, kNaN}, std::pair{9U, kInfinity}, std::pair{24U, kNaN},
                                 std::pair{38U, kInfinity}};
    for (const auto& [row, value] : kSpoilt) tested.views[row % 2 == 0 ? kFirstLog : kSecondLog]->set(row, 0, value);
    tested.write();
    ASSERT_OK(tested.run(device));
    const auto outs = tested.out();
    const auto logs = tested.log();
    for (std::uint64_t row = 0; row < tested.rows(); ++row) {
      const bool spoilt = std::ranges::any_of(kSpoilt, [&](const auto& one) { return one.first == row; });
      const std::uint32_t nan = bits_of(kNaN, dtype);
      EXPECT_EQ(tested.views[kMergedLog]->bits(logs, row),
                spoilt ? nan : tested.views[kMergedLog]->bits(sound_logs, row));
      for (std::uint64_t d = 0; d < 10; ++d) {
        ASSERT_EQ(tested.views[kMergedOut]->bits(outs, row, d),
                  spoilt ? nan : tested.views[kMergedOut]->bits(sound_outs, row, d))
            << row << ", " << d;
      }
    }
  }
}

TEST_F(MergeOnDevice, ANaNOfAPartWithKeysShows) {
  MergeUnderTest tested(device, random, {.shape = {.tokens = 9, .heads = 1, .dim = 6}, .types = all_of(DType::f16)});
  for (std::uint64_t row = 0; row < 9; ++row) tested.views[kSecondOut]->set(row, 4, kNaN);
  tested.write();
  ASSERT_OK(tested.run(device));
  const auto outs = tested.out();
  for (std::uint64_t row = 0; row < 9; ++row) {
    for (std::uint64_t d = 0; d < 6; ++d) {
      EXPECT_EQ(std::isnan(tested.views[kMergedOut]->value(outs, row, d)), d == 4) << row << ", " << d;
    }
  }
}

// Keys split in two anywhere, none on one side included: merged, they are attention over all.
TEST_F(MergeOnDevice, GivesAttentionOverAllKeys) {
  constexpr std::uint64_t kKeys = 40;
  constexpr std::uint64_t kDim = 8;
  std::normal_distribution<double> normal(0, 3);
  MergeUnderTest tested(device, random, {.shape = {.tokens = kKeys + 1, .heads = 1, .dim = kDim}});
  const auto attend = [](std::span<const double> logits, std::span<const std::array<double, kDim>> values) {
    double sum = 0;
    std::array<double, kDim> out{};
    for (std::size_t key = 0; key < logits.size(); ++key) {
      sum += std::exp(logits[key]);
      for (std::uint64_t d = 0; d < kDim; ++d) out[d] += std::exp(logits[key]) * values[key][d];
    }
    for (double& value : out) value /= sum;  // NaN where there are no keys
    return std::pair{out, std::log(sum)};
  };
  std::vector<std::array<double, kDim>> wanted;
  std::vector<double> wanted_logs;
  for (std::uint64_t split = 0; split <= kKeys; ++split) {
    std::vector<double> logits(kKeys);
    std::vector<std::array<double, kDim>> values(kKeys);
    for (double& logit : logits) logit = normal(random);
    for (auto& value : values) {
      for (double& element : value) element = normal(random);
    }
    const auto all = attend(logits, values);
    wanted.push_back(all.first);
    wanted_logs.push_back(all.second);
    const auto first = attend(std::span(logits).first(split), std::span(values).first(split));
    const auto second = attend(std::span(logits).subspan(split), std::span(values).subspan(split));
    tested.views[kFirstLog]->set(split, 0, first.second);
    tested.views[kSecondLog]->set(split, 0, second.second);
    for (std::uint64_t d = 0; d < kDim; ++d) {
      tested.views[kFirstOut]->set(split, d, first.first[d]);
      tested.views[kSecondOut]->set(split, d, second.first[d]);
    }
  }
  tested.write();
  ASSERT_OK(tested.run(device));
  EXPECT_LE(tested.worst_error(), 1);
  const auto outs = tested.out();
  const auto logs = tested.log();
  for (std::uint64_t row = 0; row <= kKeys; ++row) {
    // What merge promises, and inputs that were rounded: an element by half a last place, a logarithm of at most 16 by
    // 2^-21, which moves a share by as much.
    EXPECT_NEAR(tested.views[kMergedLog]->value(logs, row), wanted_logs[row], 2e-6);
    for (std::uint64_t d = 0; d < kDim; ++d) {
      const auto element = [&](std::uint32_t view) {
        const double value = tested.before(view, row, d);
        return std::isnan(value) ? 0 : std::fabs(value);
      };
      const double largest = std::max(element(kFirstOut), element(kSecondOut));
      EXPECT_NEAR(tested.views[kMergedOut]->value(outs, row, d), wanted[row][d], 2.5e-6 * largest) << row << ", " << d;
    }
  }
}

// Three parts into the first, one after the other in one encoder.
TEST_F(MergeOnDevice, FoldsManyPartsInPlace) {
  const MergeSpec spec{.shape = {.tokens = 13, .heads = 5, .dim = 24}, .out_in = kFirstOut, .log_in = kFirstLog};
  MergeUnderTest tested(device, random, spec);
  MergeUnderTest third(device, random, spec);
  Encoder encoder = device.encoder();
  merge(encoder, tested.call());
  Merge next = tested.call();
  next.second = third.call().second;
  merge(encoder, next);
  ASSERT_OK(std::move(encoder).submit().value().wait());

  MergeUnderTest again(device, random, spec);
  for (const std::uint32_t index : {kFirstOut, kFirstLog, kSecondOut, kSecondLog}) {
    again.views[index]->before = tested.views[index]->before;
  }
  again.write();
  ASSERT_OK(again.run(device));
  EXPECT_LE(again.worst_error(), 1);
  for (const std::uint32_t index : {kFirstOut, kFirstLog}) again.views[index]->before = again.views[index]->read();
  for (const std::uint32_t index : {kSecondOut, kSecondLog}) again.views[index]->before = third.views[index]->before;
  again.write();
  ASSERT_OK(again.run(device));
  EXPECT_LE(again.worst_error(), 1);
  EXPECT_EQ(tested.out(), again.out());
  EXPECT_EQ(tested.log(), again.log());
}

TEST_F(MergeOnDevice, RepeatsAndSlicesGiveTheSameBits) {
  MergeUnderTest tested(device, random,
                        {.shape = {.tokens = 301, .heads = 7, .dim = 50}, .types = all_of(DType::bf16)});
  ASSERT_OK(tested.run(device));
  EXPECT_LE(tested.worst_error(), 1);
  const auto outs = tested.out();
  const auto logs = tested.log();
  for (int repeat = 0; repeat < 3; ++repeat) {
    tested.write();
    ASSERT_OK(tested.run(device));
    ASSERT_EQ(tested.out(), outs);
    ASSERT_EQ(tested.log(), logs);
  }
  tested.write();
  Encoder encoder = device.encoder();
  std::uint64_t done = 0;
  for (const std::uint64_t count : {1U, 0U, 100U, 37U, 163U}) {
    const Merge whole = tested.call();
    const auto part = [&](const AttentionState& of) {
      return AttentionState{of.out.slice(done, count), of.log_sum_exp.slice(done, count)};
    };
    merge(encoder, {.first = part(whole.first),
                    .second = part(whole.second),
                    .out = whole.out.slice(done, count),
                    .log_sum_exp = tested.views[kMergedLog]->view.slice(done, count)});
    done += count;
  }
  ASSERT_EQ(done, tested.shape.tokens);
  ASSERT_OK(std::move(encoder).submit().value().wait());
  EXPECT_EQ(tested.out(), outs);
  EXPECT_EQ(tested.log(), logs);
}

TEST_F(MergeOnDevice, WritesNoLogarithmUnlessAsked) {
  MergeUnderTest tested(device, random, {.shape = {.tokens = 13, .heads = 2, .dim = 10}, .types = all_of(DType::f16)});
  ASSERT_OK(tested.run(device));
  const auto outs = tested.out();
  tested.write();
  Merge call = tested.call();
  call.log_sum_exp.reset();
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { merge(encoder, call); }));
  EXPECT_EQ(tested.out(), outs);
  EXPECT_EQ(tested.log(), tested.views[kMergedLog]->before);
}

// More rows than a device launches groups for. Every token reads the same, so the first, held against the definition
// by a call of its own, says what all of them must be.
TEST_F(MergeOnDevice, ServesMoreRowsThanGroups) {
  constexpr std::uint64_t kHeads = 65;
  constexpr std::uint64_t kTokens = 65535 / kHeads + 7;
  constexpr std::uint64_t kDim = 127;
  const MergeUnderTest one =
      expect_merged({.shape = {.tokens = 1, .heads = kHeads, .dim = kDim}, .types = all_of(DType::f16)});
  Merge call = one.call();
  for (View* view : {&call.first.out, &call.first.log_sum_exp, &call.second.out, &call.second.log_sum_exp}) {
    view->shape.tokens = kTokens;
    view->token_stride = 0;
  }
  const std::uint64_t token_bytes = kHeads * kDim * 2;
  Buffer outs = device.allocate(kTokens * token_bytes).value();
  Buffer logs = device.allocate(kTokens * kHeads * 2).value();
  call.out = MutView::token_major(outs, DType::f16, {.tokens = kTokens, .heads = kHeads, .dim = kDim});
  call.log_sum_exp = MutView::token_major(logs, DType::f16, {.tokens = kTokens, .heads = kHeads, .dim = 1});
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { merge(encoder, call); }));
  std::vector<std::byte> found(outs.size_bytes());
  std::vector<std::byte> found_logs(logs.size_bytes());
  ASSERT_OK(outs.read(found));
  ASSERT_OK(logs.read(found_logs));
  const auto wanted = one.out();
  const auto wanted_logs = one.log();
  for (std::uint64_t token = 0; token < kTokens; ++token) {
    ASSERT_EQ(std::memcmp(found.data() + token * token_bytes, wanted.data(), token_bytes), 0) << token;
    ASSERT_EQ(std::memcmp(found_logs.data() + token * kHeads * 2, wanted_logs.data(), kHeads * 2), 0) << token;
  }
}

TEST_F(MergeOnDevice, NoRowsAreFine) {
  const MergeUnderTest tested(device, random, {.shape = {.tokens = 2, .heads = 2, .dim = 2}});
  Merge call = tested.call();
  for (View* view : {&call.first.out, &call.first.log_sum_exp, &call.second.out, &call.second.log_sum_exp}) {
    *view = view->slice(0, 0);
  }
  call.out = call.out.slice(0, 0);
  call.log_sum_exp = tested.views[kMergedLog]->view.slice(0, 0);
  ASSERT_OK(run_on(device, [&](Encoder& encoder) { merge(encoder, call); }));
  EXPECT_EQ(tested.out(), tested.views[kMergedOut]->before);
}

}  // namespace
}  // namespace rota::test
