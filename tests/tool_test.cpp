#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

// The rota command, as a user meets it. ROTA_TOOL_PATH is set by the build.

namespace {

struct Output {
  std::string text;
  int exit_code = -1;
};

Output run(const std::string& arguments) {
  Output output;
  FILE* const pipe = popen((std::string(ROTA_TOOL_PATH) + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) output.text.append(part.data(), size);
  output.exit_code = WEXITSTATUS(pclose(pipe));
  return output;
}

bool contains(const Output& output, std::string_view text) { return output.text.find(text) != std::string::npos; }

TEST(Tool, WithoutACommandIsWrongUsage) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("frobnicate").exit_code, 2);
  EXPECT_EQ(run("doctor --frobnicate").exit_code, 2);
}

TEST(Tool, HelpNamesCommandsAndExitCodes) {
  const Output help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text :
       {"devices", "doctor", "Exit codes: 0 fine, 1 a check failed, 2 wrong usage, 3 no such device"}) {
    EXPECT_TRUE(contains(help, text)) << help.text;
  }
  EXPECT_TRUE(contains(run("doctor --help"), "--selftest"));
  EXPECT_TRUE(contains(run("--version"), "rota 0."));
}

TEST(Tool, DevicesListsTheCpuFirst) {
  const Output text = run("devices");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.text.rfind("cpu ", 0), 0U) << text.text;
  const auto json = nlohmann::json::parse(run("devices --json").text);
  EXPECT_EQ(json.at(0).at("id"), "cpu");
  EXPECT_GE(json.at(0).at("threads"), 1);
  EXPECT_GT(json.at(0).at("memory_bytes"), 0);
}

TEST(Tool, DoctorRunsTheSelfTestOfEveryDevice) {
  const Output output = run("doctor --selftest --json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const auto json = nlohmann::json::parse(output.text);
  EXPECT_TRUE(json.at("healthy"));
  std::size_t tests = 0;
  for (const auto& finding : json.at("findings")) {
    EXPECT_EQ(finding.at("verdict"), "works") << finding;
    tests += finding.at("subject").get<std::string>().ends_with(" store") ? 1U : 0U;
  }
  EXPECT_GE(tests, 2U) << "the CPU and a Vulkan device";
}

TEST(Tool, DoctorOfAMissingDeviceSaysSo) {
  const Output output = run("doctor --device vulkan:77");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_TRUE(contains(output, "there is no device \"vulkan:77\"")) << output.text;
}

TEST(Tool, DoctorWithoutAVulkanDriverSaysWhatToInstall) {
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  const Output without = run("doctor --json");
  unsetenv("VK_ICD_FILENAMES");
  EXPECT_EQ(without.exit_code, 0);
  const auto json = nlohmann::json::parse(without.text);
  const auto& finding = json.at("findings").back();
  EXPECT_EQ(finding.at("subject"), "vulkan");
  EXPECT_EQ(finding.at("verdict"), "missing");
  EXPECT_NE(finding.at("advice").get<std::string>().find("mesa-vulkan-drivers"), std::string::npos);
}

}  // namespace
