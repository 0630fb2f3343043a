#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command_text.h"
#include "cli/parser.h"
#include "harness/tool_run.h"
#include "rota/kv_spec.h"

// Help, man pages and completions, as real shells and man show them, name what the parser takes, and nothing else.
// ROTA_TOOL_PATH, which man pages and completions lie beside, and ROTA_SOURCE_FOLDER are set by the build.

namespace {

using rota::test::contains;
using rota::test::run_shell;
using rota::test::run_tool;
using Output = rota::test::ToolOutput;
using Words = std::set<std::string>;

const std::string kFolder = std::filesystem::path(ROTA_TOOL_PATH).parent_path().string();

struct Parser {
  rota::tool::Invocation invocation{};
  std::unique_ptr<CLI::App> app = rota::tool::make_parser(invocation);

  std::vector<const CLI::App*> commands() const {
    const CLI::App& all = *app;
    return all.get_subcommands([](const CLI::App*) { return true; });
  }
};

Words names_of(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_snames()) names.insert("-" + name);
  for (const std::string& name : option.get_lnames()) names.insert("--" + name);
  for (const auto& known : rota::tool::kShortNames) {
    if (names.contains(std::string(known.stands_for))) names.emplace(known.name);
  }
  return names;
}

Words option_names(const CLI::App& command) {
  Words all;
  for (const CLI::Option* option : command.get_options()) all.merge(names_of(*option));
  return all;
}

Words beginning_with(const std::string& start, const Words& words) {
  Words found;
  for (const std::string& word : words) {
    if (word.starts_with(start)) found.insert(word);
  }
  return found;
}

Words codecs() {
  Words names;
  for (const rota::NamedCodec& codec : rota::kCodecs) names.emplace(codec.name);
  return names;
}

// The names in lines such as "  -o, --output text|md", behind so many blanks. Descriptions stand further to the right.
Words options_listed(const std::string& text, std::size_t blanks) {
  Words found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(' ') != blanks) continue;
    std::istringstream words(line);
    for (std::string word; words >> word && word.starts_with("-");) {
      const bool more = word.ends_with(",");
      found.insert(more ? word.substr(0, word.size() - 1) : word);
      if (!more) break;
    }
  }
  return found;
}

TEST(ToolWords, HelpListsTheOptionsOfEveryCommand) {
  const Parser parser;
  EXPECT_EQ(options_listed(run_tool("--help").text, 2), option_names(*parser.app));
  for (const CLI::App* command : parser.commands()) {
    const std::string name = command->get_name();
    EXPECT_EQ(options_listed(run_tool(name + " --help").text, 2), option_names(*command)) << name;
  }
}

TEST(ToolWords, ManPagesListTheOptionsOfEveryCommandAndAreSoundRoff) {
  const Parser parser;
  std::map<std::string, Words> wanted{{"rota", option_names(*parser.app)}};
  for (const CLI::App* command : parser.commands()) wanted["rota-" + command->get_name()] = option_names(*command);
  std::size_t pages = 0;
  for (const auto& file : std::filesystem::directory_iterator(kFolder + "/man1")) {
    const std::string path = file.path().string();
    ASSERT_TRUE(wanted.contains(file.path().stem().string())) << path << " is of no command";
    ++pages;
    const Output lint = run_shell("mandoc -T lint -W warning " + path);
    EXPECT_EQ(lint.exit_code, 0) << lint.text;
    EXPECT_EQ(lint.text, "");
    const Output shown = run_shell("LC_ALL=C.UTF-8 MANWIDTH=100 MANPAGER=cat man --warnings=w -l " + path);
    EXPECT_EQ(shown.exit_code, 0) << shown.text;
    EXPECT_FALSE(contains(shown, "warning:")) << shown.text;
    EXPECT_EQ(options_listed(shown.text, 7), wanted.at(file.path().stem().string())) << shown.text;
  }
  EXPECT_EQ(pages, wanted.size());
}

TEST(ToolWords, ManualOfAllNeedsAFolderThatCanBeMade) {
  const Output output = run_tool("manual --all /dev/null/pages");
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_TRUE(contains(output, "cannot make the folder /dev/null/pages")) << output.text;
  EXPECT_EQ(run_tool("manual bench --all /tmp").exit_code, 2);
}

class Completions : public testing::TestWithParam<std::string> {
 protected:
  // What the shell offers at the end of each line.
  std::map<std::string, Words> ask(const std::vector<std::string>& lines) const {
    const std::string questions = testing::TempDir() + "rota_questions." + GetParam();
    std::ofstream file(questions);
    for (const std::string& line : lines) file << line << '\n';
    file.close();
    const std::string& shell = GetParam();
    const Output output =
        run_shell("PATH=" + kFolder + ":$PATH " + shell + " " ROTA_SOURCE_FOLDER "/tests/shells/ask." + shell + " " +
                  kFolder + "/completions/rota." + shell + " < " + questions);
    EXPECT_EQ(output.exit_code, 0) << output.text;
    std::filesystem::remove(questions);
    std::map<std::string, Words> answers;
    std::istringstream text(output.text);
    Words* words = nullptr;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("> ")) {
        words = &answers[line.substr(2)];
      } else if (words == nullptr) {
        ADD_FAILURE() << line;
      } else {
        words->insert(line);
      }
    }
    EXPECT_EQ(answers.size(), lines.size()) << output.text;
    return answers;
  }

  void expect(const std::map<std::string, Words>& wanted) const {
    std::vector<std::string> lines;
    for (const auto& [line, words] : wanted) lines.push_back(line);
    const auto answers = ask(lines);
    for (const auto& [line, words] : wanted) {
      ASSERT_TRUE(answers.contains(line)) << line;
      EXPECT_EQ(answers.at(line), words) << "at the end of \"" << line << '"';
    }
  }

  // zsh offers what goes behind the last comma, others the whole word.
  Words behind(const std::string& before, const Words& words) const {
    if (GetParam() == "zsh") return words;
    Words all;
    for (const std::string& word : words) all.insert(before + word);
    return all;
  }
};

TEST_P(Completions, OfferEveryCommandAndOptionAndNothingElse) {
  const Parser parser;
  std::map<std::string, Words> wanted;
  for (const std::string start : {"-", "--"}) {
    wanted["rota " + start] = beginning_with(start, option_names(*parser.app));
    for (const CLI::App* command : parser.commands()) {
      wanted["rota " + command->get_name() + " " + start] = beginning_with(start, option_names(*command));
    }
  }
  for (const CLI::App* command : parser.commands()) wanted["rota "].insert(command->get_name());
  wanted["rota d"] = beginning_with("d", wanted["rota "]);
  expect(wanted);
}

// Each option that takes one of a few words, in each of its names, and the same for positional words.
TEST_P(Completions, OfferTheWordsThatAnOptionTakes) {
  const Parser parser;
  std::map<std::string, Words> wanted;
  for (const auto& command : rota::tool::describe(*parser.app).commands) {
    for (const auto& option : command.options) {
      for (const std::string& name : option.names) {
        if (!option.choices.empty()) {
          wanted[command.name + " " + name + " "] = {option.choices.begin(), option.choices.end()};
        }
      }
    }
  }
  EXPECT_EQ(wanted.at("rota devices -o "), (Words{"text", "md", "csv", "json", "jsonl"}));
  EXPECT_EQ(wanted.at("rota bench --pages "), (Words{"contiguous", "scattered"}));
  wanted["rota devices --output j"] = {"json", "jsonl"};
  wanted["rota bench --rows "] = {};
  wanted["rota estimate -m llama-3.1-8"] = {"llama-3.1-8b"};
  wanted["rota bench -ctk "] = codecs();
  wanted["rota bench --cache-type-v tu"] = beginning_with("tu", codecs());
  wanted["rota bench -ctk f16,"] = behind("f16,", codecs());
  wanted["rota bench attend -ctk f16,turbo4,bf"] = behind("f16,turbo4,", {"bf16"});
  expect(wanted);
}

TEST_P(Completions, OfferPositionalWordsWhereTheyBelong) {
  const Parser parser;
  Words commands;
  for (const CLI::App* command : parser.commands()) commands.insert(command->get_name());
  std::map<std::string, Words> wanted;
  wanted["rota manual "] = commands;
  wanted["rota completions "] = {"bash", "fish", "zsh"};
  wanted["rota bench "] = wanted["rota bench --rows 1 -o json "] = {"attend", "call", "rope", "seal", "store"};
  wanted["rota bench sea"] = {"seal"};
  // Where no word is left to name, zsh shows options.
  const bool zsh = GetParam() == "zsh";
  wanted["rota bench seal "] = zsh ? option_names(*parser.app->get_subcommand("bench")) : Words{};
  wanted["rota completions bash "] = zsh ? option_names(*parser.app->get_subcommand("completions")) : Words{};
  expect(wanted);
}

TEST_P(Completions, OfferDevicesAndFiles) {
  const auto answers = ask({"rota doctor -dev ", "rota doctor --device c", "rota distort " ROTA_SOURCE_FOLDER "/LICE",
                            "rota manual --all " ROTA_SOURCE_FOLDER "/LICE"});
  EXPECT_TRUE(answers.at("rota doctor -dev ").contains("cpu"));
  EXPECT_EQ(answers.at("rota doctor --device c"), Words{"cpu"});
  for (const char* command : {"rota distort ", "rota manual --all "}) {
    const Words& files = answers.at(std::string(command) + ROTA_SOURCE_FOLDER "/LICE");
    ASSERT_EQ(files.size(), 1U) << command;
    EXPECT_TRUE(files.begin()->ends_with("LICENSE")) << *files.begin();
  }
}

INSTANTIATE_TEST_SUITE_P(Shells, Completions, testing::Values("bash", "fish", "zsh"),
                         [](const auto& shell) { return shell.param; });

}  // namespace
