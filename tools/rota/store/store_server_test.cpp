#include <optional>

#include "harness/valkey_server.h"
#include "store_reference.h"

// `rota store` with a real server.

namespace rota::test {
namespace {

class StoreOnServer : public Stored {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(kRedis)) << kRedis;
    server_.emplace(ValkeyServer::Options{.program = kRedis,
                                          .lines = {"user default off", "user me on >hush ~* &* +@all"},
                                          .user = "me",
                                          .password = "hush"});
    server_url_ = "valkey://me:hush@127.0.0.1:" + std::to_string(server_->port());
  }

  std::optional<ValkeyServer> server_;
  std::string server_url_;
};

TEST_F(StoreOnServer, CopiesFromFilesAndBack) {
  fill(url("a"), 70);
  EXPECT_EQ(row_of("copy " + url("a") + " " + server_url_).at("copied"), 72);
  EXPECT_EQ(row_of("copy " + url("a") + " " + server_url_).at("there"), 72);
  expect_filled(server_url_, 70);
  EXPECT_EQ(row_of("stat " + server_url_).at("pages"), 70);
  EXPECT_EQ(row_of("verify " + server_url_).at("right"), 72);
  EXPECT_EQ(row_of("copy " + server_url_ + " " + url("back")).at("copied"), 72);
  expect_filled(url("back"), 70);
  const auto rows = nlohmann::json::parse(run_tool("store ls -o json " + url("back")).text).at("rows");
  for (const auto& row : rows) {
    const auto index = row.at("index").get<std::size_t>();
    EXPECT_EQ(row.at("parent"), hex(index == 0 ? kRoot : key_of(index - 1)));
  }
}

TEST_F(StoreOnServer, VerifyFindsWhatIsWrong) {
  fill(server_url_, 3);
  server_->admin().say({"SETRANGE", "rota:{" + hex(key_of(1)) + "}.pages", "500", "x"});
  const ToolOutput output = run_tool("store verify " + server_url_);
  EXPECT_EQ(output.exit_code, 1) << output.text;
  EXPECT_TRUE(contains(output, "wrong " + hex(key_of(1)) + ".pages")) << output.text;
}

TEST_F(StoreOnServer, EvictsItself) { expect_failure("gc " + server_url_, 4, "evict what is least recently used"); }

TEST_F(StoreOnServer, IsTimedAndHasNothingLeftOfIt) {
  const ToolOutput output = run_tool("store bench --pages 5 -o json " + server_url_);
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_FALSE(contains(output, "hush")) << output.text;
  EXPECT_TRUE(contains(output, "valkey://me:***@127.0.0.1")) << output.text;
  EXPECT_EQ(nlohmann::json::parse(output.text).at("rows").size(), 3U);  // put, get, find
  EXPECT_EQ(server_->admin().say({"DBSIZE"}), "0");
}

TEST_F(StoreOnServer, TakesItsPasswordFromAFile) {
  std::ofstream(path("password")) << "hush\n";
  const std::string url = "'valkey://me@127.0.0.1:" + std::to_string(server_->port()) + "?password_file=";
  EXPECT_EQ(row_of("stat " + url + path("password") + "'").at("pages"), 0);
  expect_failure("stat " + url + path("none") + "'", 1, path("none"));
}

TEST_F(StoreOnServer, WhoDoesNotAnswerInTimeEndsACommand) {
  fill(server_url_, 1);
  server_->signal(SIGSTOP);
  for (const std::string action : {"stat ", "ls ", "verify ", "bench "}) {
    const auto begin = std::chrono::steady_clock::now();
    expect_failure("--timeout 0.3 " + action + server_url_, 1, "");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
  server_->signal(SIGCONT);
}

}  // namespace
}  // namespace rota::test
