#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/terminal_run.h"
#include "harness/tool_run.h"

// A run of `rota bench` from its first moment to its last, or to Ctrl-C.

namespace {

using nlohmann::json;
using rota::test::contains;
using rota::test::run_tool;
using rota::test::TerminalRun;
using rota::test::ToolOutput;

// Four small cases for each length, whose samples take 10 ms. Two dozen in all: rounds pass in a moment, and all of
// them take seconds.
std::vector<std::string> many_cases(const std::string& output, int lengths = 6) {
  std::string keys = "128";
  for (int i = 2; i <= lengths; ++i) keys += "," + std::to_string(128 * i);
  return {"bench",   "attend", "-ctk",       "f16,turbo4,turbo8,turbo3",
          "-c",      keys,     "--kv-heads", "2",
          "--group", "2",      "--rotate",   "1",
          "-t",      "1",      "--seconds",  "60",
          "-o",      output};
}

TEST(Session, TheBarIsThereBeforeDevicesAreOpened) {
  TerminalRun run({"bench", "attend", "--device", "vulkan:77"});
  EXPECT_EQ(run.end().exit_code, 3);
  const std::size_t bar = run.shown().find("[                              ] preparing");
  EXPECT_LT(bar, run.shown().find("rota bench: ")) << run.shown();
}

TEST(Session, TheBarCountsCasesAndThenRoundsAndIsWiped) {
  TerminalRun run({"bench", "attend", "-c", "16384", "--seconds", "1"});
  EXPECT_TRUE(run.shows(" of 4 ")) << "f16, turbo8, turbo4 and the plain read\n" << run.shown();
  const ToolOutput output = run.end();
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(output.text.find('\r'), std::string::npos) << "stdout has no bar";
  EXPECT_LT(run.shown().find(" of 4 "), run.shown().find("round ")) << run.shown();
  EXPECT_TRUE(run.shown().ends_with(" \r")) << run.shown();
}

TEST(Session, CtrlCPrintsTheTableOfWhatWasMeasured) {
  TerminalRun run(many_cases("text"));
  ASSERT_TRUE(run.shows("round 5"));
  run.interrupt();
  const ToolOutput output = run.end();
  EXPECT_EQ(output.exit_code, 130);
  EXPECT_TRUE(contains(output, "\nf16     f16      128 ")) << output.text;
  EXPECT_TRUE(contains(output, "\nturbo3  turbo3   768 ")) << output.text;
  EXPECT_TRUE(contains(output, "\ninterrupted after ")) << output.text;
  EXPECT_FALSE(contains(output, "too short")) << output.text;
}

TEST(Session, CtrlCIsInTheJsonAndRoundsAreWhole) {
  TerminalRun run(many_cases("json"));
  ASSERT_TRUE(run.shows("round 5"));
  run.interrupt();
  const ToolOutput output = run.end();
  EXPECT_EQ(output.exit_code, 130);
  const json report = json::parse(output.text);
  EXPECT_EQ(report.at("interrupted"), true);
  ASSERT_EQ(report.at("rows").size(), 24U);
  const auto rounds = report.at("rows").at(0).at("samples").get<int>();
  EXPECT_GE(rounds, 4);
  EXPECT_LT(rounds, 41);
  for (const json& row : report.at("rows")) EXPECT_EQ(row.at("samples"), rounds) << row;
}

TEST(Session, CtrlCBeforeAnythingWasMeasuredSaysSo) {
  TerminalRun run(many_cases("text", 50));  // three rounds take 6 seconds
  ASSERT_TRUE(run.shows("preparing"));
  run.interrupt();
  const ToolOutput output = run.end();
  EXPECT_EQ(output.exit_code, 130);
  EXPECT_EQ(output.text, "");
  EXPECT_NE(run.shown().find("rota bench: interrupted before there were 3 rounds"), std::string::npos) << run.shown();
}

TEST(Session, TakesAboutAsLongAsAskedWithAllThatItPrepares) {
  const ToolOutput output = run_tool("bench attend --seconds 3 -o json");
  const json report = json::parse(output.text);
  EXPECT_EQ(report.at("seconds").at("asked"), 3);
  EXPECT_LT(report.at("seconds").at("taken"), 15) << "much less where no other program runs";
  EXPECT_EQ(report.at("interrupted"), false);
}

TEST(Session, SaysWhenTheTimeWasTooShort) {
  const std::string small = "bench store -c 64 --kv-heads 2 --head-dim 64 --rotate 1 -t 1 --seconds ";
  const ToolOutput hasty = run_tool(small + "0.1");
  EXPECT_TRUE(contains(hasty, "\n--seconds 0.1 was too short for 5 rounds of 1 case: it took ")) << hasty.text;
  EXPECT_FALSE(contains(run_tool(small + "20"), "too short"));
}

}  // namespace
