#include "bench/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace rota::tool;

std::vector<Contender> sleepers(std::size_t count, int milliseconds) {
  const auto sleep = [milliseconds](std::uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  };
  return std::vector<Contender>(count, {sleep});
}

TEST(Sampler, HasAFewRoundsWhateverTheTime) {
  std::vector<Contender> contenders = sleepers(2, 1);
  EXPECT_TRUE(sample(contenders, {.seconds = -1}));
  for (const Contender& contender : contenders) EXPECT_EQ(contender.seconds.size(), 5U);
}

TEST(Sampler, DoesNotBeginARoundThatTheTimeCannotHold) {
  std::vector<Contender> contenders = sleepers(2, 30);
  EXPECT_TRUE(sample(contenders, {.seconds = 0.5, .least_rounds = 1}));
  EXPECT_LE(contenders.front().seconds.size(), 6U) << "warming up takes 0.12 s, each round 0.06 s, or more";
}

TEST(Sampler, KeepsWholeRoundsWhenItIsStopped) {
  std::vector<Contender> contenders = sleepers(3, 0);
  int asked = 0;
  const auto stop = [&] { return ++asked > 3 + 3 * 4 + 2; };  // in the fifth round, before its last contender
  EXPECT_FALSE(sample(contenders, {.seconds = 60, .stop = stop}));
  for (const Contender& contender : contenders) EXPECT_EQ(contender.seconds.size(), 4U);
}

TEST(Sampler, ShowsHowFarItIs) {
  std::vector<Contender> contenders = sleepers(2, 0);
  std::vector<double> shares;
  std::vector<std::string> words;
  const auto show = [&](double share, std::string_view what) {
    shares.push_back(share);
    if (words.empty() || words.back() != what) words.emplace_back(what);
  };
  EXPECT_TRUE(sample(contenders, {.seconds = 60, .most_rounds = 6, .show = show}));
  EXPECT_EQ(words,
            (std::vector<std::string>{"warming up", "round 1", "round 2", "round 3", "round 4", "round 5", "round 6"}));
  EXPECT_EQ(shares.front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  EXPECT_GT(shares.back(), 0.8);
  EXPECT_LT(shares.back(), 1);
}

}  // namespace
