#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "cli/lines.h"
#include "cli/names.h"
#include "harness/tool_run.h"
#include "rota/version.h"

// What a command line that is wrong, mistyped or read in a narrow window gets for an answer.

namespace {

using rota::test::contains;
using rota::test::run_shell;
using rota::test::run_tool;
using rota::test::ToolOutput;
using namespace rota::tool;

void expect_usage(const std::string& arguments, const std::string& said, const std::string& next = "try: rota ") {
  const ToolOutput output = run_tool(arguments);
  EXPECT_EQ(output.exit_code, 2) << arguments << "\n" << output.text;
  EXPECT_TRUE(contains(output, ": " + said)) << arguments << "\n" << output.text;
  EXPECT_TRUE(contains(output, next)) << arguments << "\n" << output.text;
}

TEST(Names, AreNearByLettersThatDiffer) {
  EXPECT_EQ(distance("", "abc"), 3U);
  EXPECT_EQ(distance("estmate", "estimate"), 1U);
  EXPECT_EQ(distance("lsit", "list"), 1U) << "neighbours that changed places";
  EXPECT_EQ(distance("kitten", "sitting"), 3U);
  EXPECT_EQ(names_like("BENHC", {"bench", "devices", "doctor"}), (std::vector<std::string>{"bench"}));
  EXPECT_TRUE(names_like("zzzzzz", {"bench", "devices"}).empty());
}

TEST(Names, OfCodecsOfOtherProgramsHaveOneHere) {
  for (const char* const name : {"q4_0", "q4_1", "iq4_nl", "int4", "nf4"}) {
    EXPECT_EQ(codec_hint(name), "; turbo4 has as many bits") << name;
  }
  EXPECT_EQ(codec_hint("q8_0"), "; turbo8 has as many bits");
  EXPECT_EQ(codec_hint("Q5_1"), "; turbo5 has as many bits");
  EXPECT_EQ(codec_hint("fp8_e4m3"), "; turbo8 has as many bits");
  EXPECT_EQ(codec_hint("fp16"), "; did you mean f16?");
  EXPECT_EQ(codec_hint("bfloat16"), "; did you mean bf16?");
  EXPECT_EQ(codec_hint("float32"), "; did you mean f32?");
  EXPECT_EQ(codec_hint("turbo7"), "; did you mean turbo8?");
  EXPECT_EQ(codec_hint("turbo1"), "; did you mean turbo2?");
  EXPECT_EQ(codec_hint("trubo4"), "; did you mean turbo4?");
  EXPECT_EQ(codec_hint("something"), "");
  EXPECT_EQ(codec_hint("q99999999999999999999"), "");
}

TEST(Usage, NamesTheOptionWhatWasFoundAndWhatWasWanted) {
  expect_usage("", "no command is named; wanted one of devices, doctor, ", "try: rota --help");
  expect_usage("devices -o xml", "-o is \"xml\"; wanted one of text, md, csv, json, jsonl");
  expect_usage("devices -o jsn", "-o is \"jsn\"; wanted one of text, md, csv, json, jsonl; did you mean json?");
  expect_usage("devices now", "\"now\" is not expected; wanted rota devices [OPTIONS]");
  expect_usage("estimate -m", "-m has no value; wanted -m MODEL");
  expect_usage("estimate --memory 1GiB --memory 2GiB", "--memory is given 2 times; wanted it once");
  expect_usage("estimate --fit=3", "--fit takes no value; wanted it alone");
  expect_usage("inspect", "FILE is missing; wanted rota inspect FILE [OPTIONS]");
  expect_usage("bench attend --rows 99999999999999999999", "--rows is \"99999999999999999999\"; wanted a whole number");
  expect_usage("bench attend --head-dim 72 -ctk turbo4", "--head-dim is 72; wanted m * 2^k");
}

TEST(Usage, MistypedNamesAreRecognized) {
  expect_usage("estmate", "there is no command \"estmate\"; did you mean estimate?", "try: rota estimate --help");
  expect_usage("help bnech", "there is no command \"bnech\"; did you mean bench?", "try: rota bench --help");
  expect_usage("manual dcotor", "there is no command \"dcotor\"; did you mean doctor?");
  expect_usage("frobnicate", "there is no command \"frobnicate\"\n", "try: rota --help");
  for (const char* const typed : {"--contxt", "--context", "--n_ctx", "--ctx", "--ctx-siez", "--max-model-len"}) {
    expect_usage(std::string("estimate ") + typed + " 5 -m llama-3.1-8b",
                 std::string("there is no option \"") + typed + "\"; did you mean --ctx-size?");
  }
  expect_usage("bench --hed-dim=64", "there is no option \"--hed-dim\"; did you mean --head-dim?");
  expect_usage("estimate --zzzzzz", "there is no option \"--zzzzzz\"\n");
}

TEST(Usage, AnOptionBeforeItsCommandIsSentBehindIt) {
  expect_usage("--model llama-3.1-8b estimate", "--model stands before its command; wanted it behind: rota estimate");
}

TEST(Usage, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(run_tool("help").text, run_tool("--help").text);
  EXPECT_EQ(run_tool("help bench").text, run_tool("bench --help").text);
  for (const char* const asked : {"version", "-V", "--version"}) {
    const ToolOutput output = run_tool(asked);
    EXPECT_EQ(output.exit_code, 0) << asked;
    EXPECT_EQ(output.text, "rota " ROTA_VERSION "\n") << asked;
  }
}

TEST(Lines, AreFilledUpToTheWidth) {
  EXPECT_EQ(wrapped("one two three", {7}), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", {9, 4, 2}), "one\n  two\n  three");
  EXPECT_EQ(wrapped("unbreakable word", {5}), "unbreakable\nword");
  EXPECT_EQ(wrapped_footer("Some words that go on\nand on.\n\nExamples:\n  rota do this that -o json", 20),
            "Some words that go\non and on.\n\nExamples:\n  rota do this \\\n      that -o json");
  EXPECT_EQ(wrapped_footer("Codes:\n  2  wrong usage of it", 16), "Codes:\n  2  wrong usage\n     of it");
  EXPECT_EQ(wrapped_footer("as\nit is", 20), "as\nit is");
}

std::vector<std::string> too_long(const std::string& text, std::size_t width) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    const bool one_word = begin == std::string::npos || line.find(' ', begin) == std::string::npos;
    if (line.size() > width && !one_word) found.push_back(line);
  }
  return found;
}

TEST(Lines, OfEveryHelpFitTheWindow) {
  for (const char* const command : {"", "devices", "doctor", "bench", "estimate", "inspect", "distort", "report",
                                    "completions", "manual", "help", "version"}) {
    std::string narrow;
    for (const std::size_t width : {std::size_t{40}, std::size_t{60}, std::size_t{80}, std::size_t{100}}) {
      const ToolOutput help =
          run_shell("COLUMNS=" + std::to_string(width) + " " ROTA_TOOL_PATH " " + std::string(command) + " --help");
      EXPECT_EQ(help.exit_code, 0);
      EXPECT_EQ(too_long(help.text, width), std::vector<std::string>{}) << command << " in " << width;
      if (width == 40) narrow = help.text;
    }
    EXPECT_NE(narrow, run_shell("COLUMNS=100 " ROTA_TOOL_PATH " " + std::string(command) + " --help").text) << command;
  }
  const std::string usual = run_shell("env -u COLUMNS " ROTA_TOOL_PATH " bench --help").text;
  for (const char* const columns : {"100", "500", "0", "wide", "-3", "''"}) {
    EXPECT_EQ(run_shell(std::string("COLUMNS=") + columns + " " ROTA_TOOL_PATH " bench --help").text, usual) << columns;
  }
}

TEST(Lines, FollowATerminal) {
  winsize window{};
  window.ws_row = 24;
  window.ws_col = 40;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &window);
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsetenv("COLUMNS");
    execl(ROTA_TOOL_PATH, ROTA_TOOL_PATH, "estimate", "--help", nullptr);
    _exit(127);
  }
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = read(terminal, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  close(terminal);
  waitpid(child, nullptr, 0);
  std::erase(text, '\r');
  EXPECT_EQ(text, run_shell("COLUMNS=40 " ROTA_TOOL_PATH " estimate --help").text);
}

}  // namespace
