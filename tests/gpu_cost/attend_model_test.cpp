#include "gpu_cost/attend_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "ops/attend/attend.params.h"

namespace rota::test {
namespace {

// f16 keys and values, D = 64, one vector: a lane loads 32 units of each, and makes 256 products of each.
SplitWork work() {
  return SplitWork({{ops::kAttendSplitConstantKeyFormat, 1},
                    {ops::kAttendSplitConstantValueFormat, 1},
                    {ops::kAttendSplitConstantKeyDim, 64},
                    {ops::kAttendSplitConstantValueDim, 64},
                    {ops::kAttendSplitConstantVectors, 1},
                    {ops::kAttendSplitConstantHasMean, 0},
                    {ops::kAttendSplitConstantKeyUnits, 1},
                    {ops::kAttendSplitConstantValueUnits, 1}});
}

std::string times(int count, std::string_view text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string loads(std::string_view side, int count) {
  const std::string_view registers = side == "K" ? "s[20:23]" : "s[24:27]";
  return times(count, fmt::format("\tbuffer_load_b128 v[4:7], v2, {}, 0 offen\n", registers));
}
std::string products(int count) { return times(count, "\tv_fmac_f32_e32 v0, v1, v2\n"); }
std::string wait(int left) { return fmt::format("\ts_waitcnt vmcnt({})\n", left); }

// BB<n> to BB<n + 2>.
std::string loop(int n, const std::string& body) {
  return fmt::format("BB{}:\n\ts_cbranch_scc1 BB{}\nBB{}:\n{}\ts_branch BB{}\nBB{}:\n", n, n + 2, n + 1, body, n,
                     n + 2);
}

std::string kernel(const std::string& keys, const std::string& values) {
  return "BB0:\n\ts_load_b256 s[20:27], s[2:3], null\n\ts_waitcnt lgkmcnt(0)\n" +
         loop(90, loop(80, keys + "\ts_barrier\n" + values)) + "\ts_endpgm\n";
}

std::string plain_values() { return loop(20, loads("V", 1) + wait(0) + products(8)); }

Walked block_of(const std::string& text) {
  return SplitModel(machine_code_of(text), work()).of_key_block(unit_latency(Counted::buffers));
}

TEST(AttendModel, FindsTripsFromWhatMustBeLoaded) {
  const Walked found = block_of(kernel(loop(10, loads("K", 1) + wait(0) + products(8)), plain_values()));
  EXPECT_EQ(found.waited, 64);
  EXPECT_EQ(found.bytes[ops::kAttendSplitBindingKeys], 512);
  EXPECT_EQ(found.bytes[ops::kAttendSplitBindingValues], 512);
  EXPECT_EQ(found.products, 512);
  EXPECT_EQ(block_of(kernel(loop(10, loads("K", 8) + wait(0) + products(64)), plain_values())).waited, 36);
}

TEST(AttendModel, KnowsLoadsAhead) {
  // The last trip loads once more than it needs to; or its work stands behind the loop.
  const std::string body = loads("K", 8) + wait(8) + products(64);
  const Walked again = block_of(kernel(loads("K", 8) + loop(10, body) + wait(0), plain_values()));
  EXPECT_EQ(again.bytes[ops::kAttendSplitBindingKeys], 640);
  EXPECT_EQ(again.products, 512);
  const Walked peeled = block_of(kernel(loads("K", 8) + loop(10, body) + wait(0) + products(64), plain_values()));
  EXPECT_EQ(peeled.bytes[ops::kAttendSplitBindingKeys], 512);
  EXPECT_EQ(peeled.products, 512);
  EXPECT_EQ(peeled.waited, 2 + 32);  // batches 1 and 2, then 3 and 4
}

TEST(AttendModel, KnowsUnrolledLoopsAndSharedMemory) {
  const Walked unrolled = block_of(kernel(times(4, loads("K", 8) + wait(0) + products(64)), plain_values()));
  EXPECT_EQ(unrolled.waited, 36);
  const std::string staged = loop(10, loads("K", 8) + wait(0)) + "\ts_barrier\n" + loop(30, products(16));
  const Walked found = block_of(kernel(staged, plain_values()));
  EXPECT_EQ(found.waited, 36);
  EXPECT_EQ(found.products, 512);
}

TEST(AttendModel, KnowsLoopsOverWhatATripHasLoaded) {
  const std::string twice = wait(0) + loop(30, products(16)) + loop(40, products(16));
  const Walked found = block_of(kernel(loop(10, loads("K", 8) + twice), plain_values()));
  EXPECT_EQ(found.waited, 36);
  EXPECT_EQ(found.products, 512);
  const Walked ahead = block_of(kernel(loads("K", 8) + loop(10, loads("K", 8) + twice), plain_values()));
  EXPECT_EQ(ahead.products, 512);
}

TEST(AttendModel, LeavesOutWhatIsRare) {
  const std::string rare =
      "\ts_cbranch_execz BB40\nBB39:\n" + loop(30, loads("K", 1) + wait(0) + products(8)) + "BB40:\n";
  const Walked found = block_of(kernel(loop(10, loads("K", 8) + wait(0) + products(64)) + rare, plain_values()));
  EXPECT_EQ(found.waited, 36);
  EXPECT_EQ(found.products, 512);
}

TEST(AttendModel, RefusesWhatItDoesNotKnow) {
  const std::string keys = loop(10, loads("K", 8) + wait(0) + products(64));
  const auto refuses = [](const std::string& text) { EXPECT_THROW(block_of(text), std::runtime_error) << text; };
  refuses(kernel(loop(10, loads("K", 8) + wait(0) + products(16)), plain_values()));   // products are missing
  refuses(kernel(loop(10, loads("K", 8) + wait(0) + products(256)), plain_values()));  // too many
  refuses(kernel(keys, loop(30, plain_values())));                                     // a loop around it
  refuses(kernel(loop(10, loads("K", 1) + loads("V", 1) + wait(0) + products(16)), plain_values()));  // of both
  refuses(kernel("", plain_values()));                                                                // no keys
  refuses(kernel(keys + loop(30, products(64)), plain_values()));                                     // of what?
  refuses(kernel(keys + "\tglobal_load_b32 v1, v2, s[0:1]\n", plain_values()));
  refuses(kernel(loads("K", 8) + wait(0) + products(64), plain_values()));  // a quarter of the keys
}

// Two passes over partial results: one of lanes, which have one each, and one of all.
std::string merge(const std::string& values) {
  const std::string of_lanes = "BB10:\n\tv_cmpx_le_u32_e32 s4, v1\n\ts_cbranch_execz BB12\nBB11:\n" + loads("K", 1) +
                               wait(0) + "\ts_branch BB10\nBB12:\n";
  return "BB0:\n\ts_load_b256 s[16:23], s[2:3], null\n\ts_waitcnt lgkmcnt(0)\n" + loop(90, of_lanes + values) +
         "\ts_endpgm\n";
}

TEST(AttendModel, KnowsHowManyPartialResultsThereAre) {
  const auto waits = [](const std::string& text, const MergeWork& what) {
    return merge_walk(machine_code_of(text), what, unit_latency(Counted::buffers)).waited;
  };
  const std::string one = "\tbuffer_load_b32 v4, v2, s[20:23], 0 offen\n";
  EXPECT_EQ(waits(merge(loop(20, one + wait(0))), {.splits = 34, .dim = 64}), 1 + 34);
  EXPECT_EQ(waits(merge(loop(20, times(8, one) + wait(0))), {.splits = 34, .dim = 64}), 1 + 5);
  EXPECT_THROW(waits(merge(one + wait(0)), {.splits = 34, .dim = 64}), std::runtime_error);
}

}  // namespace
}  // namespace rota::test
