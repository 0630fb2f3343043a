#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "harness/tool_run.h"

// `rota report`, from files to the page. ROTA_SOURCE_FOLDER is set by the build.

namespace rota::test {

using Json = nlohmann::ordered_json;

inline const std::string kBench = ROTA_SOURCE_FOLDER "/tests/report/bench.json";
inline const std::string kDistort = ROTA_SOURCE_FOLDER "/tests/report/distort.json";
inline const std::string kRandom = ROTA_SOURCE_FOLDER "/tests/report/random.json";  // rota distort --random gaussian
inline const std::string kEval = ROTA_SOURCE_FOLDER "/tests/report/eval.json";
inline const std::string kEngine = ROTA_SOURCE_FOLDER "/tests/report/engine.json";

inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Strict XML, and nothing in it that a browser would load or run.
inline void expect_sound_page(const std::string& path) {
  const std::string parse = "python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' ";
  EXPECT_EQ(std::system((parse + path).c_str()), 0) << path;
  const std::string page = read(path);
  for (const char* part : {"http://", "https://", "<script", "src=", "url(", "@import", "<img", "<link", "<iframe",
                           "javascript:", " onload=", " onclick=", "nan\"", "inf\"", "<base", "<object"}) {
    EXPECT_EQ(count(page, part), 0U) << part;
  }
  EXPECT_EQ(count(page, "href=\""), count(page, "href=\"#"));
  for (const char* part : {"<!DOCTYPE html>", "default-src 'none'", "prefers-color-scheme: dark", "@media print"}) {
    EXPECT_EQ(count(page, part), 1U) << part;
  }
  EXPECT_EQ(count(page, "<svg "), count(page, "role=\"img\""));
  EXPECT_EQ(count(page, "<svg "), count(page, "aria-label=\"") - count(page, "<nav "));
}

class Reported : public testing::Test {
 protected:
  Reported() : folder_((std::filesystem::temp_directory_path() / "rota_report_XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << folder_;
  }
  ~Reported() override { std::filesystem::remove_all(folder_); }
  Reported(const Reported&) = delete;
  Reported& operator=(const Reported&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string write(const std::string& name, const Json& json) const { return write(name, json.dump()); }

  // The page, which must be sound.
  std::string report(const std::string& files, const std::string& options = "") const {
    const ToolOutput output = run_tool("report " + files + " -O " + path("report.html") + " " + options);
    EXPECT_EQ(output.exit_code, 0) << output.text;
    expect_sound_page(path("report.html"));
    return read(path("report.html"));
  }
  // One line on stderr, which names the file, and one with what to try.
  void expect_refused(const std::string& file, const std::string& text) const {
    const ToolOutput output = run_tool("report " + file + " -O " + path("refused.html"));
    EXPECT_EQ(output.exit_code, 1) << output.text;
    EXPECT_TRUE(output.text.starts_with("rota report: " + file + ": ")) << output.text;
    EXPECT_TRUE(contains(output, text)) << text << "\n" << output.text;
    const std::string next = "\ntry: rota report --help\n";
    EXPECT_EQ(output.text.find('\n'), output.text.size() - next.size()) << output.text;
    EXPECT_TRUE(output.text.ends_with(next)) << output.text;
    EXPECT_FALSE(std::filesystem::exists(path("refused.html")));
  }
  // Of bench.
  void expect_row_refused(const std::string& key, const Json& value, const std::string& text) const {
    SCOPED_TRACE(key + ": " + value.dump());
    Json json = Json::parse(read(kBench));
    json["rows"][2][key] = value;
    expect_refused(write("bad.json", json), "row 3: \"" + key + "\" " + text);
  }

  std::string folder_;
};

}  // namespace rota::test
