#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/tool_run.h"
#include "rota/kv_saved.h"

// `rota inspect`, as a user meets it.

namespace {

using rota::test::contains;
using rota::test::run_tool;
using rota::test::ToolOutput;

const std::string kSample = ROTA_SOURCE_FOLDER "/tests/saved/two_groups.rota";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file with these bytes, for one test.
class Inspected : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path =
        testing::TempDir() + "rota_inspect_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static void expect_failure(const std::string& arguments, const std::string& what) {
    const ToolOutput output = run_tool("inspect " + arguments);
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_TRUE(contains(output, what)) << output.text;
  }
};

TEST_F(Inspected, SaysAllThatTheHeaderHas) {
  const ToolOutput output = run_tool("inspect " + kSample + " -o json");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto found = nlohmann::json::parse(output.text);
  EXPECT_EQ(found.at("saved").at("version"), rota::kSavedVersion);
  EXPECT_EQ(found.at("saved").at("end"), 200);
  EXPECT_EQ(found.at("saved").at("bytes"), bytes_of(kSample).size());
  EXPECT_EQ(found.at("saved").at("verified"), true);
  EXPECT_EQ(found.at("notes").size(), 2U);
  const auto& rows = found.at("rows");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].at("layers"), "0, 2-3");
  EXPECT_EQ(rows[0].at("codec"), "turbo4");
  EXPECT_EQ(rows[0].at("sealed"), 2);
  EXPECT_EQ(rows[2].at("window"), 100);
  EXPECT_EQ(rows[2].at("codec"), "f16");
}

TEST_F(Inspected, DamageIsFoundUnlessOnlyTheHeaderIsRead) {
  std::string bytes = bytes_of(kSample);
  bytes[bytes.size() - 20] ^= 1;
  const std::string path = write(bytes);
  expect_failure(path, "checksum");
  EXPECT_EQ(run_tool("inspect --header " + path).exit_code, 0);
}

TEST_F(Inspected, NoFileNameCommandsATerminal) {
  const std::string hostile = testing::TempDir() + "rota_\xc2\x9b\xe2\x80\xae.rota";
  std::filesystem::copy_file(kSample, hostile, std::filesystem::copy_options::overwrite_existing);
  for (const std::string& arguments : {"'" + hostile + "'", "'" + hostile + "' -o json", "'" + hostile + ".none'"}) {
    const ToolOutput output = run_tool("inspect " + arguments);
    EXPECT_TRUE(contains(output, "rota_?")) << output.text;
    EXPECT_FALSE(contains(output, "\xc2\x9b") || contains(output, "\xe2\x80\xae")) << output.text;
  }
  std::filesystem::remove(hostile);
}

TEST_F(Inspected, FilesThatAreNotSoundFail) {
  const std::string bytes = bytes_of(kSample);
  expect_failure("/nonexistent", "No such file");
  expect_failure(ROTA_SOURCE_FOLDER, "is no file");
  expect_failure(ROTA_SOURCE_FOLDER "/LICENSE", "does not begin with ROTA-SEQ");
  expect_failure(write(bytes.substr(0, 40)), "the file is truncated: it has 40 bytes, and at least 24 more are wanted");
  const std::string truncated =
      "is truncated: it has " + std::to_string(bytes.size() - 1) + " bytes; wanted " + std::to_string(bytes.size());
  expect_failure(write(bytes.substr(0, bytes.size() - 1)), truncated);
  expect_failure("--header " + write(bytes.substr(0, bytes.size() - 1)), truncated);
  expect_failure(write(bytes + "x"), "bytes long; the saved sequence has");
}

}  // namespace
