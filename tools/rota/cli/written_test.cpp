#include "cli/written.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/show.h"
#include "cli/table.h"

namespace {

using namespace rota::tool;

// ESC, a C1 control that begins a sequence of its own, marks that turn text around, and half of a character.
const std::string kHostile =
    "a\x1b[31m\xc2\x9b"
    "31mb\xe2\x80\xae"
    "c\xd8\x9c"
    "d\xe2\x80\x8f"
    "e\xe2\x81\xa6"
    "f\xe2\x80\xa8"
    "g\xff"
    "h\r";
const std::string kTamed = "a?[31m?31mb?c?d?e?f?g?h?";

TEST(Written, LeavesNothingThatATerminalWouldObey) {
  EXPECT_EQ(shown(kHostile), kTamed);
  EXPECT_EQ(shown("two\nlines\tof \xc3\xa9t\xc3\xa9"), "two\nlines\tof \xc3\xa9t\xc3\xa9");
  EXPECT_EQ(one_line("two\nlines\t" + kHostile), "two?lines?" + kTamed);
}

TEST(Written, TablesOfEveryKindAreSafeAndJsonKeepsItsData) {
  const Report report{.head = {{"who", kHostile}},
                      .table = {.columns = {{"name", "name"}}, .rows = {{{"name", kHostile}}}}};
  for (const Output output : {Output::text, Output::md, Output::json, Output::jsonl}) {
    const std::string text = report_text(report, output);
    EXPECT_EQ(shown(text), text) << static_cast<int>(output);
  }
  const auto json = nlohmann::json::parse(report_text(report, Output::json));
  std::string whole = kHostile;
  whole.replace(whole.find('\xff'), 1, "\xef\xbf\xbd");  // what was no character cannot be kept
  EXPECT_EQ(json.at("who"), whole);
  EXPECT_EQ(json.at("rows").at(0).at("name"), whole);
}

TEST(Written, AFileThatCannotBeWrittenIsNamed) {
  for (const char* path : {"/nonexistent/file", "/dev/full"}) {
    try {
      write_file(path, "words");
      ADD_FAILURE() << path;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.exit(), Exit::failed_check);
      EXPECT_NE(std::string(failure.what()).find(path), std::string::npos) << failure.what();
    }
  }
}

}  // namespace
