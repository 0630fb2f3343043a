#include "runtime/hazards.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>

namespace rota::runtime {
namespace {

class NoMemory final : public Memory {
 public:
  NoMemory() noexcept : Memory(0, nullptr) {}
};

const std::shared_ptr<Memory> kA = std::make_shared<NoMemory>();
const std::shared_ptr<Memory> kB = std::make_shared<NoMemory>();

Binding reads(const std::shared_ptr<Memory>& memory, std::uint64_t begin, std::uint64_t end) {
  return {memory.get(), {}, {begin, end}, Access::read};
}
Binding writes(const std::shared_ptr<Memory>& memory, std::uint64_t begin, std::uint64_t end) {
  return {memory.get(), {}, {begin, end}, Access::write};
}

bool second_needs_barrier(const Binding& first, const Binding& second) {
  Hazards hazards;
  EXPECT_FALSE(hazards.needs_barrier({&first, 1}));
  return hazards.needs_barrier({&second, 1});
}

TEST(Hazards, StandBetweenConflictsOnly) {
  EXPECT_TRUE(second_needs_barrier(writes(kA, 0, 8), reads(kA, 4, 12)));
  EXPECT_TRUE(second_needs_barrier(reads(kA, 0, 8), writes(kA, 4, 12)));
  EXPECT_TRUE(second_needs_barrier(writes(kA, 0, 8), writes(kA, 7, 12)));
  EXPECT_FALSE(second_needs_barrier(reads(kA, 0, 8), reads(kA, 0, 8)));
  EXPECT_FALSE(second_needs_barrier(writes(kA, 0, 8), writes(kA, 8, 12)));
  EXPECT_FALSE(second_needs_barrier(writes(kA, 0, 8), writes(kB, 0, 8)));
  EXPECT_FALSE(second_needs_barrier(writes(kA, 0, 8), reads(kA, 4, 4)));
  EXPECT_FALSE(second_needs_barrier(writes(kA, 4, 4), reads(kA, 0, 8)));
}

TEST(Hazards, OneBarrierServesAllThatCameBefore) {
  Hazards hazards;
  const Binding write_a = writes(kA, 0, 8);
  const Binding write_b = writes(kB, 0, 8);
  const Binding read_a = reads(kA, 0, 8);
  const Binding read_b = reads(kB, 0, 8);
  EXPECT_FALSE(hazards.needs_barrier({&write_a, 1}));
  EXPECT_FALSE(hazards.needs_barrier({&write_b, 1}));
  EXPECT_TRUE(hazards.needs_barrier({&read_a, 1}));
  EXPECT_FALSE(hazards.needs_barrier({&read_b, 1})) << "the same barrier stands before it";
  EXPECT_TRUE(hazards.needs_barrier({&write_b, 1})) << "the read came after the barrier";
}

// Commands that do not conflict, each touching places of its own in an order that follows no address.
TEST(Hazards, CostTheSameHoweverManyCommandsCameBefore) {
  const auto seconds_for = [](std::uint64_t commands) {
    Hazards hazards;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < commands; ++i) {
      const std::uint64_t at = i * 2654435761 % 1048576 * 16;  // odd: each place once
      const Binding bound[] = {reads(kA, at, at + 8), writes(kB, at, at + 8)};
      EXPECT_FALSE(hazards.needs_barrier(bound));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // The best of each, in turn: what else the machine does meets both.
  double few = 1e9;
  double many = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    few = std::min(few, seconds_for(10'000));
    many = std::min(many, seconds_for(80'000));
  }
  EXPECT_LT(many, 30 * few) << "eight times as many; comparing all with all takes 64";
}

RC_GTEST_PROP(Hazards, NoConflictIsLeftAndNoBarrierIsIdle, ()) {
  Hazards hazards;
  std::vector<std::vector<Binding>> since;  // commands since the last barrier
  for (auto count = *rc::gen::inRange(1, 30); count > 0; --count) {
    std::vector<Binding> bindings;
    for (auto bound = *rc::gen::inRange(1, 4); bound > 0; --bound) {
      const auto begin = *rc::gen::inRange<std::uint64_t>(0, 20);
      const auto end = begin + *rc::gen::inRange<std::uint64_t>(1, 6);
      const auto memory = *rc::gen::element(kA, kB);
      bindings.push_back(*rc::gen::arbitrary<bool>() ? reads(memory, begin, end) : writes(memory, begin, end));
    }
    bool conflict = false;
    for (const auto& earlier : since) {
      for (const Binding& before : earlier) {
        for (const Binding& now : bindings) {
          for (std::uint64_t byte = before.touched.begin; byte < before.touched.end; ++byte) {
            conflict =
                conflict || (before.memory == now.memory && byte >= now.touched.begin && byte < now.touched.end &&
                             !(before.access == Access::read && now.access == Access::read));
          }
        }
      }
    }
    RC_ASSERT(hazards.needs_barrier(bindings) == conflict);
    if (conflict) since.clear();
    since.push_back(bindings);
  }
}

}  // namespace
}  // namespace rota::runtime
