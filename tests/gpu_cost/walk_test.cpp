#include "gpu_cost/walk.h"

#include <gtest/gtest.h>

namespace rota::test {
namespace {

constexpr std::string_view kLoad = "\tbuffer_load_b128 v[4:7], v2, s[20:23], 0 offen\n";
constexpr std::string_view kScalarLoad = "\ts_buffer_load_b32 s24, s[20:23], s24\n";
constexpr std::string_view kConstants = "\ts_load_b128 s[20:23], s[2:3], 0x10\n";

std::string wait(int left) { return "\ts_waitcnt vmcnt(" + std::to_string(left) + ")\n"; }

std::string loop_of(const std::string& before, const std::string& body) {
  return "BB0:\n" + std::string(kConstants) + before + "BB1:\n\ts_cbranch_scc1 BB3\nBB2:\n" + body +
         "\ts_branch BB1\nBB3:\n\ts_endpgm\n";
}

Walked walked(const std::string& text, std::uint64_t trips, Counted counted = Counted::buffers) {
  const MachineCode code = machine_code_of(text);
  return walk(code, std::vector<Trips>(code.loops.size(), Trips{.count = trips}), unit_latency(counted));
}

std::string times(int count, std::string_view text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Walk, CountsLoadsThatFollowFromEachOther) {
  EXPECT_EQ(walked(loop_of("", std::string(kLoad) + wait(0)), 16).waited, 16);
  const Walked batch = walked(loop_of("", times(4, kLoad) + wait(3) + wait(2) + wait(1) + wait(0)), 4);
  EXPECT_EQ(batch.waited, 4);  // four came together
  EXPECT_EQ(batch.loads_in_flight, 4U);
  EXPECT_EQ(batch.bytes[1], 256);
}

TEST(Walk, LoadsAheadHideBehindEachOther) {
  // The next batch is under way when the present one is waited for: it takes one latency for two trips.
  const std::string twice = std::string(kLoad) + wait(1) + kLoad.data() + wait(1);
  EXPECT_EQ(walked(loop_of(std::string(kLoad), std::string(kLoad) + wait(1)), 16).waited, 8);
  EXPECT_EQ(walked(loop_of(std::string(kLoad), twice), 8).waited, 8);
  // Waiting for what was just issued undoes it.
  EXPECT_EQ(walked(loop_of(std::string(kLoad), std::string(kLoad) + wait(1) + wait(0)), 16).waited, 16);
}

TEST(Walk, ScalarLoadsCountAndSharedMemoryDoesNot) {
  const std::string lgkm = "\ts_waitcnt lgkmcnt(0)\n";
  const std::string body = std::string(kScalarLoad) + lgkm + kLoad.data() + wait(0);
  EXPECT_EQ(walked(loop_of("", body), 8).waited, 16);
  EXPECT_EQ(walked(loop_of("", std::string(kScalarLoad) + kLoad.data() + lgkm + wait(0)), 8).waited, 8);
  const Walked shared = walked(loop_of("", "\tds_load_b128 v[0:3], v4\n" + lgkm), 8);
  EXPECT_EQ(shared.waited, 0);
  EXPECT_EQ(shared.shared, 8);
  EXPECT_EQ(shared.shared_bytes, 128);
}

TEST(Walk, ConstantsCountIfAskedFor) {
  const std::string body = std::string(kConstants) + "\ts_waitcnt lgkmcnt(0)\n" + kLoad.data() + wait(0);
  EXPECT_EQ(walked(loop_of("", body), 8).waited, 8);
  EXPECT_EQ(walked(loop_of("", body), 8, Counted::everything).waited, 16);
}

TEST(Walk, TakesAShareOfWhatIsBehindACondition) {
  const std::string body = std::string(kLoad) + "\ts_cbranch_vccz BB5\nBB4:\n" + kLoad.data() + "BB5:\n" + wait(0) +
                           "\tv_fmac_f32_e32 v0, v1, v2\n";
  const MachineCode code = machine_code_of(loop_of("", body));
  const Trips half{.count = 8, .thinned_binding = 1, .thinned_share = 0.5};
  const Walked found = walk(code, {half}, unit_latency(Counted::buffers));
  EXPECT_EQ(found.bytes[1], 16 * (8 + 4));
  EXPECT_EQ(found.products, 8);
  EXPECT_EQ(walk(code, {Trips{.count = 8}}, unit_latency(Counted::buffers)).bytes[1], 16 * 16);
}

}  // namespace
}  // namespace rota::test
