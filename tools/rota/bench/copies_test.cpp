#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "bench_case.h"
#include "ops/attend/attend_bench_case.h"

// Memory that cases share.

namespace {

using namespace rota;
using bench::CallCopies;

constexpr std::uint64_t kRotated = 1U << 20;

class SharedCopies : public testing::Test {
 protected:
  CallCopies dense_copies(std::uint64_t bytes) {
    CallCopies copies;
    copies.add(bench::numbers(DType::f16), bytes);
    copies.reserve(place, kRotated);
    return copies;
  }

  std::uint64_t taken = 0;
  bench::Place place{.device = Device::open({.device = "cpu", .threads = 1}).value(),
                     .take = [this](std::uint64_t bytes) { taken += bytes; }};
};

TEST_F(SharedCopies, TakeWhatTheLargestNeeds) {
  const CallCopies small = dense_copies(kRotated / 16);
  EXPECT_EQ(small.count(), 16U);
  EXPECT_EQ(taken, kRotated);
  const CallCopies large = dense_copies(kRotated / 16 * 10);
  EXPECT_EQ(large.count(), 2U) << "as much as was asked for, or more";
  EXPECT_EQ(taken, kRotated / 16 * 20);
  const CallCopies huge = dense_copies(2 * kRotated);
  EXPECT_EQ(huge.count(), 1U);
  EXPECT_EQ(taken, 2 * kRotated);
  for (const CallCopies* one : {&small, &large, &huge}) one->fill(place.device);
  EXPECT_EQ(taken, 2 * kRotated);
  dense_copies(3 * kRotated).fill(place.device);
  EXPECT_EQ(taken, 5 * kRotated) << "what is there does not grow: it is in use";
}

TEST_F(SharedCopies, TouchWhatWasTouchedLongestAgo) {
  const std::vector<CallCopies> cases{dense_copies(kRotated / 32), dense_copies(kRotated / 8),
                                      dense_copies(kRotated / 4), dense_copies(3 * 64 * 100)};
  constexpr std::uint64_t kGrain = 64;
  std::vector<std::uint64_t> touched(2 * kRotated / kGrain);  // when, in bytes that calls had touched by then
  std::uint64_t clock = 0, wraps = 0;
  for (std::uint64_t call = 0; call < 1000; ++call) {
    const CallCopies& one = cases[(call * call / 3) % cases.size()];
    one.fill(place.device);
    const std::uint64_t copy = one.next();
    ASSERT_LT(copy, one.count());
    const std::uint64_t begin = one.at({.part = 0, .inside = 0}, copy).offset_bytes;
    for (std::uint64_t byte = begin; byte < begin + one.bytes(); byte += kGrain) {
      std::uint64_t& last = touched.at(byte / kGrain);
      if (last != 0) {
        ASSERT_GE(clock - last, kRotated / 2) << "call " << call;
      }
      wraps += last != 0 ? 1U : 0U;
      clock += kGrain;
      last = clock;
    }
  }
  EXPECT_GT(wraps, 10 * kRotated / kGrain) << "it went round several times";
}

TEST_F(SharedCopies, OfSeveralContentsLieInWholeUnits) {
  const PageFormat format{.codec = turbo(4), .side = KvSide::keys, .head_dim = 64};
  std::vector<CallCopies> cases(2);
  std::map<const CallCopies*, std::vector<CallCopies::Where>> pieces;
  for (CallCopies& one : cases) {
    const std::uint64_t pages = &one == &cases.front() ? 3 : 7;
    pieces[&one] = {one.add(bench::numbers(DType::f16), 100),
                    one.add(bench::sealed_pages(format), pages * page_bytes(format)),
                    one.add(bench::numbers(DType::f16), 50)};
    one.reserve(place, 1U << 17);
  }
  const std::vector<std::byte> pattern = bench::sealed_pages(format).pattern(place.device);
  for (const CallCopies& one : cases) {
    one.fill(place.device);
    const auto& [dense, sealed, more] = std::tie(pieces[&one][0], pieces[&one][1], pieces[&one][2]);
    for (std::uint64_t copy = 0; copy < one.count(); ++copy) {
      EXPECT_EQ(one.at(more, copy).offset_bytes - one.at(dense, copy).offset_bytes, 128U) << "a multiple of 64";
      const CallCopies::At at = one.at(sealed, copy);
      ASSERT_EQ(at.offset_bytes % page_bytes(format), 0U);
      std::vector<std::byte> page(page_bytes(format));
      at.buffer.read(page, at.offset_bytes).value();
      const std::uint64_t place_in_pattern = at.offset_bytes % pattern.size();
      EXPECT_TRUE(
          std::equal(page.begin(), page.end(), pattern.begin() + static_cast<std::ptrdiff_t>(place_in_pattern)));
    }
  }
}

TEST_F(SharedCopies, AreOneForAllLengthsOfACache) {
  for (const std::uint64_t keys : {256U, 1024U, 2048U}) {
    bench::attend_work(place,
                       {.kv_heads = 1, .head_dim = 64, .value_dim = 64, .keys = keys, .rotated_bytes = kRotated});
  }
  constexpr std::uint64_t kCopiesOf2048 = 2, kOuts = 4, kHeadBytes = 4 * 64 * sizeof(float);
  EXPECT_EQ(taken, kRotated + (3 + kOuts + kOuts + kCopiesOf2048) * kHeadBytes) << "with queries and outputs";
}

TEST_F(SharedCopies, CountFewOutputs) {
  // 2,048 query tokens over 128 keys: outputs are much larger than the cache.
  bench::attend_work(
      place, {.kv_heads = 1, .head_dim = 64, .value_dim = 64, .keys = 128, .rows = 2048, .rotated_bytes = kRotated});
  constexpr std::uint64_t kOutput = std::uint64_t{2048} * 4 * 64 * sizeof(float);
  EXPECT_EQ(taken, kRotated + 5 * kOutput) << "queries, and 4 outputs for 32 copies";
}

TEST_F(SharedCopies, OfMoreThanABufferLieInSeveral) {
  const std::uint64_t most = place.device.info().limits.max_buffer_bytes;
  CallCopies copies(place);
  const CallCopies::Where k = copies.add(bench::numbers(DType::f16), most / 128 * 64);
  const CallCopies::Where v = copies.add(bench::numbers(DType::f16), most / 128 * 64);
  const CallCopies::Where more = copies.add(bench::numbers(DType::f16), 6400);
  EXPECT_EQ(k.part, v.part);
  EXPECT_NE(more.part, k.part);
  EXPECT_EQ(more.inside, 0U);
}

}  // namespace
