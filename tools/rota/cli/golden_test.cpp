#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/schema.h"
#include "cli/parser.h"
#include "cli/table.h"
#include "harness/tool_run.h"

// What the tool prints, to the letter: tests/golden has it, and with ROTA_WRITE_GOLDEN=1 in the environment these
// tests write it. ROTA_SOURCE_FOLDER is set by the build.

namespace {

using rota::test::run_tool;
using rota::test::ToolOutput;
using rota::tool::Output;

constexpr const char* kAccept = "ROTA_WRITE_GOLDEN=1 ctest --preset dev -R Golden";

struct Golden {
  std::string path;  // in the source folder
  std::function<std::string()> make;

  // GoogleTest would name its bytes, which are others in every run.
  friend void PrintTo(const Golden& golden, std::ostream* stream) { *stream << golden.path; }
};

std::string path_of(const std::string& path) { return ROTA_SOURCE_FOLDER "/" + path; }

std::string read(const std::string& path) {
  std::ifstream file(path_of(path), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string printed(const std::string& arguments) {
  const ToolOutput output = run_tool(arguments);
  EXPECT_EQ(output.exit_code, 0) << arguments << "\n" << output.text;
  return output.text;
}

struct Format {
  std::string name, ending;
  Output output;
};

const Format kFormats[] = {{"text", "txt", Output::text},
                           {"md", "md", Output::md},
                           {"csv", "csv", Output::csv},
                           {"json", "json", Output::json},
                           {"jsonl", "jsonl", Output::jsonl}};

// All that a cell may hold, and what formats have to quote.
rota::tool::Report every_kind_of_cell() {
  return {.head = {{"report", "example"}, {"format", 1}},
          .table = {.columns = {{"name", "name"},
                                {"count", "count"},
                                {"share", "share", "percent"},
                                {"size", "size", "bytes"},
                                {"time", "time | ms", ".3f"},
                                {"good", "good"},
                                {"list", "list"}},
                    .rows = {{{"name", "plain"},
                              {"count", 7},
                              {"share", 0.875},
                              {"size", 1536},
                              {"time", 0.12345},
                              {"good", true},
                              {"list", {16, 32, 64}},
                              {"only_json", "shown by JSON alone"}},
                             {{"name", "a|b, \"quoted\""},
                              {"count", nullptr},
                              {"share", nullptr},
                              {"size", 123},
                              {"time", 1234.5},
                              {"good", false},
                              {"list", {"x|y", "z"}}},
                             {{"name", "Grüße, 鍵 und µs"},
                              {"count", 18446744073709551615U},
                              {"size", std::uint64_t{1} << 40U},
                              {"list", rota::tool::Json::array()}},
                             {{"name", "two\nlines"}, {"count", -3}, {"list", {nullptr, 1.5}}}}},
          .before = "What comes before.\n\n",
          .after = "\nWhat comes after.\n"};
}

// What is another at every build and day.
std::string without_origin(const std::string& text) {
  return std::regex_replace(text, std::regex(R"re("(version|commit|build|date)": "[^"]*")re"), R"("$1": "...")");
}

// Two kinds of layers, a note, and what fits beside what does not.
const std::string kEstimate =
    "estimate -m gpt-oss-20b -c 4096,131072 -ctk f16,turbo4 -ctv f16,turbo3 --memory 15GiB --weights 13GB -o ";

std::string errors() {
  std::string text;
  for (const char* arguments : {"",
                                "frobnicate",
                                "estmate",
                                "help estmate",
                                "devices now",
                                "devices --frobnicate",
                                "devices -o xml",
                                "doctor --device vulkan:77",
                                "bench",
                                "bench dance",
                                "bench attend -c 0",
                                "bench attend -c many",
                                "bench attend -c 18446744073709551615",
                                "bench attend -ctk q8_0",
                                "bench attend -ctk fp16",
                                "bench attend --contxt 4096",
                                "bench attend -ctk f16,turbo4 -ctv f16,turbo4,turbo3",
                                "bench attend --seconds 0",
                                "bench attend -t 0",
                                "bench attend --device cuda:0",
                                "bench attend --model gemma-3-12b --head-dim 64",
                                "bench attend --model gema-3-12b",
                                "bench attend --head-dim 72 -ctk turbo4",
                                "bench store -ctk turbo4",
                                "bench seal -ctk f16",
                                "estimate",
                                "estimate -m lama-3.1-8b",
                                "estimate -m /nonexistent.gguf",
                                "estimate -m /nonexistent/config.json",
                                "estimate -m llama-3.1-8b -c 12x",
                                "estimate -m llama-3.1-8b -c",
                                "estimate -m llama-3.1-8b --page 100",
                                "estimate -m llama-3.1-8b --beyond",
                                "estimate -m llama-3.1-8b --fit=3",
                                "estimate -m llama-3.1-8b -c 4096 --fit",
                                "estimate -m llama-3.1-8b --memory much",
                                "estimate -m llama-3.1-8b --memory 1MiB --fit -o csv",
                                "inspect",
                                "inspect /nonexistent.rota",
                                "report",
                                "report /nonexistent.json",
                                "completions cmd"}) {
    const ToolOutput output = run_tool(arguments);
    text += std::string("$ rota") + (*arguments == '\0' ? "" : " ") + arguments + "\nexit code " +
            std::to_string(output.exit_code) + "\n" + output.text + "\n";
  }
  return text;
}

// The page's head is written by hand; from the first table on, it is the tool's words.
Golden page(const std::string& path, const std::string& command) {
  const auto make = [path, command] {
    const auto first_table = [](const std::string& text) {
      const std::size_t line = text.starts_with('|') ? 0 : text.find("\n|") + 1;
      return std::min(line, text.size());
    };
    const std::string written = read(path), found = printed(command);
    return written.substr(0, first_table(written)) + found.substr(first_table(found));
  };
  return {path, make};
}

std::vector<Golden> goldens() {
  std::vector<Golden> all;
  const auto add_help = [&](const std::string& command) {
    all.push_back({"tests/golden/help_" + (command.empty() ? "rota" : command) + ".txt", [command] {
                     unsetenv("COLUMNS");
                     return printed(command + " --help");
                   }});
  };
  rota::tool::Invocation invocation;
  const auto parser = rota::tool::make_parser(invocation);
  add_help("");
  for (const CLI::App* command : std::as_const(*parser).get_subcommands([](const CLI::App*) { return true; })) {
    add_help(command->get_name());
  }
  for (const Format& format : kFormats) {
    all.push_back({"tests/golden/table." + format.ending,
                   [format] { return rota::tool::report_text(every_kind_of_cell(), format.output); }});
    all.push_back({"tests/golden/estimate." + format.ending,
                   [format] { return without_origin(printed(kEstimate + format.name)); }});
  }
  all.push_back({"tests/golden/errors.txt", errors});
  all.push_back({"docs/bench.schema.json", rota::tool::bench_schema});
  all.push_back(page("docs/support.md", "doctor --kernels -o md"));
  all.push_back(
      page("docs/distortion.md", "distort " ROTA_SOURCE_FOLDER "/tests/captures --random gaussian,laplace -o md"));
  return all;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string first_difference(const std::string& wanted, const std::string& found) {
  const std::vector<std::string> before = lines_of(wanted), after = lines_of(found);
  if (before == after) return "the end of its last line";
  std::size_t at = 0;
  while (at < std::min(before.size(), after.size()) && before[at] == after[at]) ++at;
  const auto line = [at](const std::vector<std::string>& lines) {
    return at < lines.size() ? lines[at] : std::string("(no more lines)");
  };
  return "line " + std::to_string(at + 1) + "\n  wanted: " + line(before) + "\n  found:  " + line(after);
}

class GoldenFile : public testing::TestWithParam<Golden> {};

TEST_P(GoldenFile, IsWhatTheToolPrints) {
  const auto& [path, make] = GetParam();
  const std::string found = make();
  if (std::getenv("ROTA_WRITE_GOLDEN") != nullptr) {
    std::ofstream file(path_of(path), std::ios::binary);
    EXPECT_TRUE(file << found) << path;
    return;
  }
  const std::string wanted = read(path);
  EXPECT_TRUE(wanted == found) << path << " differs in " << first_difference(wanted, found)
                               << "\nto accept what was found: " << kAccept;
}

INSTANTIATE_TEST_SUITE_P(Tool, GoldenFile, testing::ValuesIn(goldens()), [](const auto& golden) {
  std::string name = std::filesystem::path(golden.param.path).filename().string();
  std::ranges::replace(name, '.', '_');
  return name;
});

TEST(GoldenFiles, AreAllCompared) {
  std::set<std::string> compared, there;
  for (const Golden& golden : goldens()) compared.insert(golden.path);
  for (const auto& file : std::filesystem::directory_iterator(path_of("tests/golden"))) {
    there.insert("tests/golden/" + file.path().filename().string());
  }
  for (const std::string& path : there) EXPECT_TRUE(compared.contains(path)) << path << " is of no test; remove it";
}

TEST(GoldenFiles, TellWhereTheyDiffer) {
  EXPECT_EQ(first_difference("a\nb\nc\n", "a\nx\nc\n"), "line 2\n  wanted: b\n  found:  x");
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "line 2\n  wanted: (no more lines)\n  found:  b");
  EXPECT_EQ(first_difference("a\n", "a"), "the end of its last line");
}

}  // namespace
