#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "harness/valkey_server.h"
#include "harness/valkey_store.h"
#include "page_store/valkey/command.h"

namespace rota::test {
namespace {

using namespace std::chrono_literals;
using page_store::Wanted;

// With each kind of server.
class Valkey : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(GetParam())) << GetParam();
    server_.emplace(ValkeyServer::Options{.program = GetParam()});
  }

  std::string url(const std::string& options = {}) const {
    return "valkey://127.0.0.1:" + std::to_string(server_->port()) + options;
  }
  std::shared_ptr<Medium> open(const std::string& options = {}) const { return open_at(url(options)).value(); }

  std::optional<ValkeyServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Servers, Valkey, testing::Values(kRedis, kValkey),
                         [](const auto& given) { return given.param == kRedis ? "Redis" : "Valkey"; });

TEST_P(Valkey, WhatIsPutIsFoundAndGot) {
  const auto medium = open();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5'000'000}}) {
    const auto payload = payload_of(7, bytes);
    ASSERT_TRUE(medium->put(header_of(7, payload), payload, soon()).ok());
    const auto got = medium->get({key_of(7), StoredPart::pages}, soon());
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_TRUE(*got == payload);
    const std::vector keys{key_of(8), key_of(7)};
    const auto found = medium->find(keys, soon());
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->size(), 2);
    EXPECT_EQ((*found)[0].key, keys[0]);
    EXPECT_EQ((*found)[0].bytes(), 0);
    EXPECT_EQ((*found)[1].key, keys[1]);
    EXPECT_EQ((*found)[1].part_bytes, (std::array<std::uint64_t, 3>{bytes + page_store::kObjectHeaderBytes, 0, 0}));
  }
}

TEST_P(Valkey, KeysAreAsDocumented) {
  const auto medium = open("?prefix=other%3A");
  ASSERT_TRUE(put(*medium, 1, 10).ok());
  EXPECT_EQ(server_->admin().say({"KEYS", "*"}), "other:{" + hex(key_of(1)) + "}.pages\n");
  EXPECT_EQ(server_->admin().say({"TTL", "other:{" + hex(key_of(1)) + "}.pages"}), "-1");
}

TEST_P(Valkey, ExpiresAfterItsTime) {
  const auto medium = open("?ttl=100");
  ASSERT_TRUE(put(*medium, 1, 10).ok());
  const int left = std::stoi(server_->admin().say({"TTL", "rota:{" + hex(key_of(1)) + "}.pages"}));
  EXPECT_GE(left, 40);
  EXPECT_LE(left, 100);
  EXPECT_TRUE(medium->get({key_of(1), StoredPart::pages}, soon()).ok());
}

TEST_P(Valkey, WhatIsWrongIsAnErrorAndNoPage) {
  const auto medium = open();
  const ObjectName name{key_of(1), StoredPart::pages};
  const std::string key = "rota:{" + hex(key_of(1)) + "}.pages";
  const auto message = [&] { return medium->get(name, soon()).error().message; };
  EXPECT_NE(message().find("is not there"), std::string::npos);
  ASSERT_TRUE(put(*medium, 1, 1000).ok());
  server_->admin().say({"SETRANGE", key, "500", "x"});
  EXPECT_NE(message().find("the checksum is"), std::string::npos);
  EXPECT_NE(message().find("is not there"), std::string::npos) << "what is wrong is removed";
  ASSERT_TRUE(put(*medium, 1, 1000).ok());
  server_->admin().say({"SETRANGE", key, "20", "x"});
  EXPECT_NE(message().find("the header's checksum"), std::string::npos);
  server_->admin().say({"SET", key, "short"});
  EXPECT_NE(message().find("is none"), std::string::npos);
  server_->admin().say({"DEL", key});
  server_->admin().say({"LPUSH", key, "a list"});
  EXPECT_NE(message().find("WRONGTYPE"), std::string::npos);
  EXPECT_EQ(medium->get(name, soon()).error().code, Errc::io);
}

TEST_P(Valkey, RemovesAllPartsOfOnePage) {
  const auto medium = open();
  const auto payload = payload_of(3, 100);
  for (const StoredPart part : kStoredParts) {
    ASSERT_TRUE(medium->put(header_of(3, payload, part), payload, soon()).ok());
  }
  ASSERT_TRUE(put(*medium, 4, 100).ok());
  ASSERT_TRUE(medium->remove(key_of(3), soon()).ok());
  EXPECT_EQ(server_->admin().say({"DBSIZE"}), "1");
  EXPECT_TRUE(medium->get({key_of(4), StoredPart::pages}, soon()).ok());
}

TEST_P(Valkey, ListsEachPageOnceAndNothingElse) {
  const auto medium = open("?prefix=a*%5B%5D%3F");
  const auto others = open("?prefix=ab");
  for (std::uint32_t i = 0; i < 2500; ++i) ASSERT_TRUE(put(*medium, i, i % 7).ok());
  const auto payload = payload_of(0, 50);
  ASSERT_TRUE(medium->put(header_of(0, payload, StoredPart::state), payload, soon()).ok());
  ASSERT_TRUE(put(*others, 1, 1).ok());
  server_->admin().say({"SET", "a*[]?{junk", "x"});
  std::map<PageKey, StoredPage> found;
  const auto each = [&](const StoredPage& page) {
    EXPECT_TRUE(found.emplace(page.key, page).second);
    return Status();
  };
  ASSERT_TRUE(medium->list(each, soon()).ok());
  ASSERT_EQ(found.size(), 2500);
  EXPECT_EQ(found[key_of(2)].index, 2);
  EXPECT_EQ(found[key_of(2)].parent, key_of(1002));
  EXPECT_EQ(found[key_of(0)].part_bytes, (std::array<std::uint64_t, 3>{128, 0, 178}));
  const auto stat = medium->stat(soon());
  ASSERT_TRUE(stat.ok());
  EXPECT_EQ(stat->pages, 2500);
  EXPECT_EQ(stat->medium, GetParam() == kRedis ? "Redis 7.0.15" : "Valkey 8.0.1");
  EXPECT_EQ(medium->collect(soon()).error().code, Errc::unsupported);
  const Status stopped = medium->list([](const StoredPage&) { return Status(Error{Errc::busy, "enough"}); }, soon());
  EXPECT_EQ(stopped.error().code, Errc::busy);
}

// Many objects, more than the window has room for, read in pieces by several threads.
TEST_P(Valkey, FetchesInOrderForSeveralThreads) {
  const auto medium = open();
  constexpr std::size_t kBytes = 3'000'001;
  constexpr std::uint32_t kObjects = 40;
  std::vector<Wanted> wanted;
  for (std::uint32_t i = 0; i < kObjects; ++i) {
    if (i < 4) {
      ASSERT_TRUE(put(*medium, i, kBytes).ok());
    }
    wanted.push_back({{key_of(i % 4), StoredPart::pages}, kBytes});
  }
  auto fetch = medium->fetch(wanted, 5s).value();
  std::atomic<std::size_t> next = 0;
  std::atomic<int> wrong = 0;
  const auto read_some = [&] {
    constexpr std::size_t kPiece = 700'000;
    constexpr std::size_t kPieces = (kBytes + kPiece - 1) / kPiece;
    for (std::size_t i = next++; i < kObjects * kPieces; i = next++) {
      const std::size_t offset = i % kPieces * kPiece;
      std::vector<std::byte> piece(std::min(kPiece, kBytes - offset));
      const auto all = payload_of(static_cast<std::uint32_t>(i / kPieces % 4), kBytes);
      const Status status = fetch->read(i / kPieces, offset, piece);
      if (!status || !std::equal(piece.begin(), piece.end(), all.begin() + static_cast<std::ptrdiff_t>(offset)))
        ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(read_some);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Valkey, AFetchGivesErrorsForWhatIsNotAsWantedAndGoesOn) {
  const auto medium = open();
  for (const std::uint32_t i : {0U, 2U, 3U, 4U, 5U}) ASSERT_TRUE(put(*medium, i, 100'000).ok());
  const std::string key = "rota:{" + hex(key_of(4)) + "}.pages";
  server_->admin().say({"SETRANGE", key, "20", "x"});
  std::vector<Wanted> wanted;
  for (std::uint32_t i = 0; i < 7; ++i) wanted.push_back({{key_of(i), StoredPart::pages}, 100'000});
  // What is where the last belongs is another's.
  server_->admin().say({"COPY", "rota:{" + hex(key_of(0)) + "}.pages", "rota:{" + hex(key_of(6)) + "}.pages"});
  wanted[2].payload_bytes = 99'999;  // less than is there, and beyond what may come
  wanted[3].payload_bytes = 20'000;
  auto fetch = medium->fetch(wanted, 20s).value();
  std::vector<std::byte> bytes(20'000);
  EXPECT_TRUE(fetch->read(0, 0, bytes).ok());
  EXPECT_NE(fetch->read(1, 0, bytes).error().message.find("is not there"), std::string::npos);
  EXPECT_NE(fetch->read(2, 0, bytes).error().message.find("bytes"), std::string::npos);
  EXPECT_NE(fetch->read(3, 0, bytes).error().message.find("more bytes than were asked for"), std::string::npos);
  EXPECT_NE(fetch->read(4, 0, bytes).error().message.find("checksum"), std::string::npos);
  const Status last = fetch->read(5, 80'000, bytes);
  EXPECT_TRUE(last.ok()) << last.error().message;
  EXPECT_NE(fetch->read(6, 0, bytes).error().message.find("belongs"), std::string::npos);
  EXPECT_NE(medium->get(wanted[6].name, soon()).error().message.find("belongs"), std::string::npos);
  const auto all = payload_of(5, 100'000);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), all.begin() + 80'000));
}

TEST_P(Valkey, AFetchThatEndsEarlyDisturbsNobody) {
  const auto medium = open();
  for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(put(*medium, i, 2'000'000).ok());
  std::vector<Wanted> wanted;
  for (std::uint32_t i = 0; i < 80; ++i) wanted.push_back({{key_of(i % 8), StoredPart::pages}, 2'000'000});
  for (int round = 0; round < 10; ++round) {
    auto fetch = medium->fetch(wanted, 20s).value();
    if (round % 2 == 0) {
      std::vector<std::byte> bytes(1000);
      ASSERT_TRUE(fetch->read(0, 0, bytes).ok());
    }
    const Deadline begin = Clock::now();
    fetch.reset();
    EXPECT_LT(Clock::now() - begin, 10s);
    EXPECT_TRUE(*medium->get({key_of(1), StoredPart::pages}, soon()) == payload_of(1, 2'000'000));
  }
}

TEST_P(Valkey, CutConnectionsAreMadeAnew) {
  const auto medium = open();
  ASSERT_TRUE(put(*medium, 1, 100).ok());
  auto admin = server_->admin();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(admin.say({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}), "1");
    ASSERT_TRUE(medium->get({key_of(1), StoredPart::pages}, soon()).ok());
  }
}

TEST_P(Valkey, ConnectionsAreCutUnderLoadAndNoPageIsWrong) {
  const auto medium = open();
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(put(*medium, i, 1'000'000).ok());
  std::atomic<bool> is_over = false;
  std::atomic<int> good = 0, wrong = 0;
  const auto use = [&](std::uint32_t number) {
    while (!is_over) {
      const auto got = medium->get({key_of(number), StoredPart::pages}, in(1s));
      if (got) ++(*got == payload_of(number, 1'000'000) ? good : wrong);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 2; ++i) threads.emplace_back(use, i);
  auto admin = server_->admin();
  const Deadline end = in(30s);
  for (int i = 0; (i < 30 || good == 0) && Clock::now() < end; ++i) {
    admin.say({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    std::this_thread::sleep_for(10ms * std::max(i / 30, 1));  // at last there is time for a page
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(good, 0);
}

TEST_P(Valkey, AServerThatHangsCostsTheDeadlineOnceAndIsLeftAloneThen) {
  const auto medium = open();
  ASSERT_TRUE(put(*medium, 1, 100).ok());
  server_->signal(SIGSTOP);
  const auto timed = [&](const auto& call) {
    const Deadline begin = Clock::now();
    EXPECT_FALSE(call());
    return Clock::now() - begin;
  };
  const auto get = [&] { return medium->get({key_of(1), StoredPart::pages}, in(300ms)).ok(); };
  const auto first = timed(get);
  EXPECT_GE(first, 290ms);
  EXPECT_LT(first, 2s);
  // One that comes late tries the server once more, and then it is left alone for longer.
  EXPECT_LT(std::min({timed(get), timed(get), timed(get)}), 290ms);
  std::this_thread::sleep_for(120ms);
  const auto payload = payload_of(2, 8'000'000);
  const ObjectHeader header = header_of(2, payload);
  EXPECT_LT(timed([&] { return medium->put(header, payload, in(300ms)).ok(); }), 2s);
  std::this_thread::sleep_for(300ms);
  const auto fetched = timed([&] {
    auto fetch = medium->fetch({{{key_of(1), StoredPart::pages}, 100}}, 300ms).value();
    std::vector<std::byte> bytes(100);
    return fetch->read(0, 0, bytes).ok();
  });
  EXPECT_LT(fetched, 2s);
  server_->signal(SIGCONT);
  EXPECT_TRUE(holds_within(30s, get));
}

TEST_P(Valkey, AServerThatIsGoneFailsAtOnceAndServesAgainWhenItIsBack) {
  const auto medium = open();
  ASSERT_TRUE(put(*medium, 1, 100).ok());
  server_->stop();
  const Deadline begin = Clock::now();
  const auto got = medium->get({key_of(1), StoredPart::pages}, in(20s));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Errc::io);
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_FALSE(open_at(url()).ok());
  server_->start();
  EXPECT_TRUE(holds_within(30s, [&] { return put(*medium, 1, 100).ok(); }));
  EXPECT_TRUE(medium->get({key_of(1), StoredPart::pages}, soon()).ok());
}

TEST_P(Valkey, AFullServerSaysSo) {
  const auto medium = open();
  server_->admin().say({"CONFIG", "SET", "maxmemory", "1mb"});
  server_->admin().say({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  const Status status = put(*medium, 1, 5'000'000);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("OOM"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace rota::test
