#include "store_reference.h"

#include <algorithm>

#include "harness/terminal_run.h"

// `rota store`, as a user meets it, with stores of files.

namespace rota::test {
namespace {

using Json = nlohmann::json;

class StoreOfFiles : public Stored {};

TEST_F(StoreOfFiles, StatSaysHowMuchThereIs) {
  fill(url("a"), 3);
  const Json row = row_of("stat " + url("a"));
  EXPECT_EQ(row.at("medium"), "files");
  EXPECT_EQ(row.at("pages"), 3);
  EXPECT_GE(row.at("bytes"), 3 * 1000 + 2 * 1002);
  EXPECT_TRUE(row.at("max_bytes").is_null());
  EXPECT_EQ(row_of("gc --max-bytes 1MiB " + url("a")).at("pages"), 3);
  EXPECT_EQ(row_of("stat " + url("a")).at("max_bytes"), 1 << 20);
}

TEST_F(StoreOfFiles, LsNamesPagesWithTheirParts) {
  fill(url("a"), 3);
  const auto found = Json::parse(run_tool("store ls -o json " + url("a")).text);
  ASSERT_EQ(found.at("rows").size(), 3U);
  for (const Json& row : found.at("rows")) {
    const auto index = row.at("index").get<std::size_t>();
    EXPECT_EQ(row.at("key"), hex(key_of(index)));
    EXPECT_EQ(row.at("parent"), hex(index == 0 ? kRoot : key_of(index - 1)));
    EXPECT_EQ(row.at("pages_bytes"), 1128 + index);
    EXPECT_EQ(row.at("window_bytes").is_null(), index != 2);
    EXPECT_EQ(row.at("state_bytes").is_null(), index != 2);
    EXPECT_TRUE(row.at("used").get<std::string>().starts_with("20")) << row;
  }
  const ToolOutput text = run_tool("store ls " + url("a"));
  EXPECT_TRUE(contains(text, hex(key_of(1)).substr(0, 16) + " ")) << text.text;
  const ToolOutput some = run_tool("store ls --limit 2 " + url("a"));
  EXPECT_TRUE(contains(some, "2 of 3 pages")) << some.text;
  EXPECT_EQ(Json::parse(run_tool("store ls --limit 2 -o json " + url("a")).text).at("rows").size(), 2U);
}

TEST_F(StoreOfFiles, VerifyFindsWhatIsWrongAndWhatIsMissing) {
  fill(url("a"), 4);
  Json row = row_of("verify " + url("a"));
  EXPECT_EQ(row.at("objects"), 6);
  EXPECT_EQ(row.at("right"), 6);
  EXPECT_EQ(row.at("bytes"), 1000 + 1001 + 1002 + 3 * 1003);

  flip_a_bit("a", 1);
  std::filesystem::resize_file(file_of("a", 2), 700);
  const ToolOutput output = run_tool("store verify -o json " + url("a"));
  EXPECT_EQ(output.exit_code, 1) << output.text;
  const auto found = Json::parse(output.text);
  EXPECT_EQ(found.at("rows")[0].at("right"), 4);
  EXPECT_EQ(found.at("rows")[0].at("wrong"), 2);
  EXPECT_EQ(found.at("rows")[0].at("missing"), 0);
  ASSERT_EQ(found.at("bad").size(), 2U);
  EXPECT_EQ(found.at("bad")[0].at("key"), hex(key_of(1)));
  EXPECT_EQ(found.at("bad")[0].at("part"), "pages");
  EXPECT_EQ(found.at("bad")[0].at("state"), "wrong");

  std::filesystem::remove(file_of("a", 0));
  row = row_of("verify " + url("a"));
  EXPECT_EQ(row.at("missing"), 1);
  EXPECT_EQ(row.at("wrong"), 0);
}

TEST_F(StoreOfFiles, CopyTakesWhatIsNotThereYet) {
  fill(url("a"), 70);  // more than are looked up at once
  fill(url("b"), 5);
  // The fifth page is the end of a chain there: its window and state are not in the other store, and stay.
  const Json first = row_of("copy " + url("a") + " " + url("b"));
  EXPECT_EQ(first.at("copied"), 72 - 5);
  EXPECT_EQ(first.at("there"), 5);
  expect_filled(url("b"), 70);
  const Json second = row_of("copy " + url("a") + " " + url("b"));
  EXPECT_EQ(second.at("copied"), 0);
  EXPECT_EQ(second.at("bytes"), 0);
  EXPECT_EQ(second.at("there"), 72);
  EXPECT_EQ(row_of("copy " + url("b") + " " + url("new")).at("copied"), 74);
  expect_filled(url("new"), 70);
  EXPECT_EQ(row_of("verify " + url("new")).at("right"), 74);
}

TEST_F(StoreOfFiles, CopyLeavesWhatIsWrong) {
  fill(url("a"), 3);
  flip_a_bit("a", 1);
  const Json row = row_of("copy " + url("a") + " " + url("b"), 1);
  EXPECT_EQ(row.at("copied"), 4);
  EXPECT_EQ(row.at("wrong"), 1);
  EXPECT_FALSE(std::filesystem::exists(file_of("b", 1)));
  EXPECT_TRUE(std::filesystem::exists(file_of("b", 2)));
}

TEST_F(StoreOfFiles, GcAdoptsAndEvicts) {
  fill(url("a"), 4);
  for (const char* file : {"/index.sqlite", "/index.sqlite-wal", "/index.sqlite-shm"}) {
    std::filesystem::remove(path("a") + file);
  }
  run_tool("store gc " + url("a"));
  EXPECT_EQ(row_of("stat " + url("a")).at("pages"), 4);
  const std::uint64_t all_bytes = row_of("stat " + url("a")).at("bytes");
  const Json row = row_of("gc " + url("a") + " --max-bytes " + std::to_string(all_bytes - 1));
  EXPECT_GE(row.at("evicted_pages"), 1);
  EXPECT_LT(row.at("bytes"), all_bytes);
  EXPECT_FALSE(std::filesystem::exists(file_of("a", 3)));  // the end of the chain
  EXPECT_TRUE(std::filesystem::exists(file_of("a", 0)));
}

class StoreBench : public Stored {
 protected:
  void expect_nothing_is_left(std::size_t pages) const {
    EXPECT_EQ(row_of("stat " + url("a")).at("pages"), pages);
    for (const auto& entry : std::filesystem::directory_iterator(path("a"))) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("raw")) << entry.path();
    }
  }
};

TEST_F(StoreBench, TimesPutAndGetBesidePlainFilesAndLeavesNothing) {
  fill(url("a"), 2);
  const ToolOutput output = run_tool("store bench --pages 5 --page-bytes 64KiB -o json " + url("a"));
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto found = Json::parse(output.text);
  EXPECT_EQ(found.at("page_bytes"), 65536);
  std::vector<std::string> calls;
  for (const Json& row : found.at("rows")) {
    calls.push_back(row.at("call"));
    EXPECT_EQ(row.at("calls"), 5);
    EXPECT_GT(row.at("ms"), 0);
    const bool is_find = calls.back() == "find", has_raw = calls.back() == "put" || calls.back() == "get";
    EXPECT_EQ(row.at("mb_per_s").is_null(), is_find);
    EXPECT_EQ(row.at("of_raw").is_null(), !has_raw);
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"put", "raw write", "get", "raw read", "find"}));
  expect_nothing_is_left(2);
}

TEST_F(StoreBench, LeavesNothingWhenItIsInterrupted) {
  fill(url("a"), 2);
  TerminalRun run({"store", "bench", "--pages", "1000000", "--page-bytes", "1000", url("a")});
  ASSERT_TRUE(run.shows(" of 1000000")) << run.shown();
  run.interrupt();
  const ToolOutput output = run.end();
  EXPECT_EQ(output.exit_code, 130) << output.text;
  EXPECT_TRUE(contains(output, "put ") && contains(output, "interrupted: what was measured")) << output.text;
  expect_nothing_is_left(2);
}

TEST_F(StoreBench, EvictsNobodysPages) {
  fill(url("a"), 2);
  EXPECT_EQ(row_of("gc --max-bytes 1MiB " + url("a")).at("evicted_pages"), 0);
  expect_failure("bench --pages 2 " + url("a"), 2, "would evict others");
  expect_nothing_is_left(2);
}

TEST_F(StoreOfFiles, WhoLooksAtAStoreMakesNone) {
  std::filesystem::create_directory(path("empty"));
  for (const std::string action : {"stat", "ls", "verify", "gc"}) {
    expect_failure(action + " " + url("none"), 1, "wanted a folder with a page store in it");
    expect_failure(action + " " + url("empty"), 1, "there is no store");
  }
  expect_failure("copy " + url("none") + " " + url("new"), 1, "wanted a folder with a page store in it");
  EXPECT_FALSE(std::filesystem::exists(path("none")) || std::filesystem::exists(path("new")));
  EXPECT_TRUE(std::filesystem::is_empty(path("empty")));
  std::ofstream(path("file")) << "no folder";
  expect_failure("stat " + url("file"), 1, path("file"));
  expect_failure("bench file:/nonexistent/a/b", 1, "No such file");
}

TEST_F(StoreOfFiles, WrongUsageIsSaidInTheWordsOfTheCommandLine) {
  fill(url("a"), 1);
  expect_failure("", 2, "ACTION is missing; wanted rota store ACTION URL [TO] [OPTIONS]");
  expect_failure("stat", 2, "URL is missing");
  expect_failure("sat " + url("a"), 2, "did you mean stat?");
  expect_failure("stat nowhere", 2, "the URL is none: wanted file:PATH, valkey://HOST");
  expect_failure("copy " + url("a"), 2, "TO is missing");
  expect_failure("copy " + url("a") + " " + url("a"), 2, "URL and TO are the same store");
  expect_failure("stat " + url("a") + " " + url("b"), 2,
                 "TO is given to rota store stat; wanted it with rota store copy");
  expect_failure("stat --limit 3 " + url("a"), 2, "wanted it with rota store ls alone");
  expect_failure("gc --max-bytes much " + url("a"), 2, "--max-bytes is \"much\"; wanted bytes below 2^63");
  expect_failure("bench --pages 0 " + url("a"), 2, "--pages is 0; wanted 1 to 1000000");
  expect_failure("bench --page-bytes 1GiB " + url("a"), 2, "--page-bytes is 1073741824; wanted 1 to 268435456");
}

TEST(StorePasswords, AreNotSaidInErrors) {
  for (const std::string arguments : {"stat valkey://me:hush@127.0.0.1:1", "stat 'valkey://me:hu/s@h?h@127.0.0.1:1'",
                                      "valkey://:hush@127.0.0.1:1", "stat a b redis://me:hush@127.0.0.1:1",
                                      "stat valkey://me:hush@127.0.0.1:port", "ls --limit valkey://me:hush@there a"}) {
    const ToolOutput output = run_tool("store " + arguments);
    EXPECT_NE(output.exit_code, 0) << arguments;
    EXPECT_FALSE(contains(output, "hush") || contains(output, "hu/s") || contains(output, "h?h")) << output.text;
  }
}

}  // namespace
}  // namespace rota::test
