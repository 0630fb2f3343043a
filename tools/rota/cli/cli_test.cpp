#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/tool_run.h"
#include "rota/version.h"

// The rota command, as a user meets it.

namespace {

using rota::test::contains;
using Output = rota::test::ToolOutput;

Output run(const std::string& arguments) { return rota::test::run_tool(arguments); }

TEST(Tool, WithoutACommandIsWrongUsage) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("frobnicate").exit_code, 2);
  EXPECT_EQ(run("doctor --frobnicate").exit_code, 2);
}

TEST(Tool, HelpNamesCommandsAndExitCodes) {
  const Output help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"devices", "distort", "doctor", "Exit codes:"}) {
    EXPECT_TRUE(contains(help, text)) << help.text;
  }
  EXPECT_TRUE(contains(run("doctor --help"), "--selftest"));
  EXPECT_EQ(run("--version").text, "rota " ROTA_VERSION "\n");
  EXPECT_TRUE(run("doctor --device cpu").text.starts_with("rota " ROTA_VERSION "\n"));
}

TEST(Tool, SaysWhenItsWordsDidNotArrive) {
  for (const char* arguments :
       {"devices", "devices -o json", "doctor --device cpu", "doctor --kernels --device cpu", "--help", "--version",
        "completions bash", "manual bench", "estimate -m llama-3.1-8b", "estimate -m llama-3.1-8b -o json",
        "estimate --list-models", "bench store -c 64 --rotate 0 --seconds 0.1 -t 1",
        "report " ROTA_SOURCE_FOLDER "/tests/report/bench.json -O -",
        "inspect " ROTA_SOURCE_FOLDER "/tests/saved/two_groups.rota"}) {
    const Output output = run(std::string(arguments) + " > /dev/full");
    EXPECT_EQ(output.exit_code, 1) << arguments << "\n" << output.text;
    EXPECT_TRUE(contains(output, "standard output: No space left on device")) << arguments << "\n" << output.text;
  }
}

TEST(Tool, DevicesListsTheCpuFirst) {
  const Output text = run("devices");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.text.rfind("cpu ", 0), 0U) << text.text;
  const auto json = nlohmann::json::parse(run("devices -o json").text).at("rows");
  EXPECT_EQ(json.at(0).at("id"), "cpu");
  EXPECT_GE(json.at(0).at("threads"), 1);
  EXPECT_GT(json.at(0).at("memory_bytes"), 0);
}

TEST(Tool, DevicesCountsTheCpusThatItMayRunOn) {
  const Output output = rota::test::run_shell("taskset -c 0 " ROTA_TOOL_PATH " devices -o json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(nlohmann::json::parse(output.text).at("rows").at(0).at("threads"), 1);
}

TEST(Tool, DoctorRunsTheSelfTestOfEveryDevice) {
  const Output output = run("doctor --selftest -o json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  EXPECT_TRUE(json.at("healthy"));
  std::size_t tests = 0;
  for (const auto& finding : json.at("rows")) {
    EXPECT_EQ(finding.at("verdict"), "works") << finding;
    tests += finding.value("op", "") == "store" ? 1U : 0U;
  }
  EXPECT_GE(tests, 18U) << "nine pairs of types on the CPU and on a Vulkan device";
}

TEST(Tool, DoctorOfAMissingDeviceSaysSo) {
  const Output output = run("doctor --device vulkan:77");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_TRUE(contains(output, "there is no device \"vulkan:77\"")) << output.text;
}

TEST(Tool, DoctorWithoutAVulkanDriverSaysWhatToInstall) {
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  const Output without = run("doctor -o json");
  unsetenv("VK_ICD_FILENAMES");
  EXPECT_EQ(without.exit_code, 0);
  const auto json = nlohmann::json::parse(without.text);
  const auto& finding = json.at("rows").back();
  EXPECT_EQ(finding.at("device"), "vulkan");
  EXPECT_EQ(finding.at("verdict"), "missing");
  EXPECT_NE(finding.at("advice").get<std::string>().find("mesa-vulkan-drivers"), std::string::npos);
}

}  // namespace
