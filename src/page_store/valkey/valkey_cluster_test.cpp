#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "harness/valkey_cluster.h"
#include "harness/valkey_store.h"
#include "page_store/valkey/exchange.h"
#include "page_store/valkey/server_key.h"

namespace rota::test {
namespace {

using namespace std::chrono_literals;
using page_store::Wanted;

// One cluster for all tests here; those that change it leave it whole.
class ValkeyOfCluster : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string program = std::filesystem::exists(kValkey) ? kValkey : kRedis;
    cluster_ = std::make_unique<ValkeyCluster>(program);
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static std::shared_ptr<Medium> open() { return open_at(cluster_->url()).value(); }

  static std::string server_key_of(std::uint32_t number) {
    return page_store::server_key("rota:", {key_of(number), StoredPart::pages});
  }
  static std::uint16_t slot_of(std::uint32_t number) { return page_store::slot_of(server_key_of(number)); }

  static inline std::unique_ptr<ValkeyCluster> cluster_;
};

// Readers and writers of pages, who count what is wrong and what is late.
class Load {
 public:
  static constexpr std::size_t kBytes = 20'000;
  static constexpr std::uint32_t kPages = 64;

  // Each call has this deadline.
  Load(std::shared_ptr<Medium> medium, std::chrono::milliseconds deadline)
      : medium_(std::move(medium)), deadline_(deadline) {
    for (std::uint32_t i = 0; i < kPages; ++i) put(*medium_, i, kBytes).value();
    threads_.emplace_back([this] { read(); });
    threads_.emplace_back([this] { write(); });
    threads_.emplace_back([this] { fetch(); });
  }
  ~Load() { end(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void end() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<int> good = 0, failed = 0, wrong = 0, late = 0;
  std::atomic<long> longest_ms = 0;

 private:
  template <class Call>
  void time(const Call& call) {
    const Deadline begin = Clock::now();
    ++(call() ? good : failed);
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    longest_ms = std::max<long>(longest_ms, ms.count());
    if (ms > deadline_ + 2s) ++late;
    std::this_thread::sleep_for(1ms);
  }

  void read() {
    for (std::uint32_t i = 0; !is_over_; i = (i + 1) % kPages) {
      time([&] {
        const auto got = medium_->get({key_of(i), StoredPart::pages}, in(deadline_));
        if (got && *got != payload_of(i, kBytes)) ++wrong;
        return got.ok();
      });
    }
  }

  void write() {
    for (std::uint32_t i = 0; !is_over_; i = (i + 1) % kPages) {
      time([&] { return put(*medium_, i, kBytes, in(deadline_)).ok(); });
    }
  }

  void fetch() {
    while (!is_over_) {
      std::vector<Wanted> wanted;
      for (std::uint32_t i = 0; i < kPages; ++i) wanted.push_back({{key_of(i), StoredPart::pages}, kBytes});
      auto fetch = medium_->fetch(wanted, deadline_);
      for (std::uint32_t i = 0; fetch && i < kPages && !is_over_; ++i) {
        std::vector<std::byte> bytes(kBytes);
        time([&] {
          const Status status = (*fetch)->read(i, 0, bytes);
          if (status && bytes != payload_of(i, kBytes)) ++wrong;
          return status.ok();
        });
      }
    }
  }

  std::shared_ptr<Medium> medium_;
  const std::chrono::milliseconds deadline_;
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(ValkeyOfCluster, PagesOnAllMastersComeBack) {
  const auto medium = open();
  std::set<std::size_t> masters;
  std::vector<PageKey> keys;
  std::vector<Wanted> wanted;
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(put(*medium, i, 1000 + i).ok());
    masters.insert(slot_of(i) * std::size_t{3} / page_store::kSlots);
    keys.push_back(key_of(i));
    wanted.push_back({{key_of(i), StoredPart::pages}, 1000 + i});
  }
  EXPECT_EQ(masters.size(), 3);
  const auto found = medium->find(keys, soon()).value();
  auto fetch = medium->fetch(wanted, 20s).value();
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(found[i].part_bytes[0], 1128 + i);
    std::vector<std::byte> bytes(1000 + i);
    ASSERT_TRUE(fetch->read(i, 0, bytes).ok());
    EXPECT_TRUE(bytes == payload_of(i, 1000 + i));
  }
  const auto stat = medium->stat(soon());
  ASSERT_TRUE(stat.ok()) << stat.error().message;
  EXPECT_EQ(stat->pages, 100);
  EXPECT_NE(stat->medium.find(", cluster of 3"), std::string::npos) << stat->medium;
  for (const PageKey& key : keys) ASSERT_TRUE(medium->remove(key, soon()).ok());
  EXPECT_EQ(medium->stat(soon())->pages, 0);
}

TEST_F(ValkeyOfCluster, AnyNodeWillDoToBeginWith) {
  ASSERT_TRUE(put(*open(), 5, 100).ok());
  for (std::size_t i = 0; i < ValkeyCluster::kNodes; ++i) {
    const auto medium = open_at(cluster_->url(i));
    ASSERT_TRUE(medium.ok()) << medium.error().message;
    EXPECT_TRUE((*medium)->get({key_of(5), StoredPart::pages}, soon()).ok());
  }
}

TEST_F(ValkeyOfCluster, RefusesServersAndIsRefusedForReasonsItTells) {
  const std::string at = "127.0.0.1:" + std::to_string(cluster_->port(0));
  const std::string ca = "?ca=" + cluster_->certificates().ca;
  const auto message = [&](const std::string& url) {
    const auto medium = open_at(url, 1s);
    if (medium) return std::string("opened");
    EXPECT_EQ(medium.error().message.find("secret"), std::string::npos);
    EXPECT_EQ(medium.error().message.find("wr0ng"), std::string::npos);
    return medium.error().message;
  };
  const auto has = [&](const std::string& url, const std::string& part) {
    const std::string found = message(url);
    EXPECT_NE(found.find(part), std::string::npos) << url << ": " << found;
  };
  has("valkeys://rota:secret%21@" + at + "?ca=" + cluster_->certificates().other_ca, "certificate is refused");
  has("valkeys://rota:secret%21@" + at, "certificate is refused");
  const std::string by_name = "localhost:" + std::to_string(cluster_->port(0));
  has("valkeys://rota:secret%21@" + by_name + ca, "certificate is refused: hostname mismatch");
  has("valkeys://rota:wr0ng@" + at + ca, "AUTH of user rota was refused: WRONGPASS");
  has("valkeys://" + at + ca, "NOAUTH");
  has("valkey://rota:secret%21@" + at, "the connection");
  has("valkeys://rota:secret%21@" + at + "?ca=/nowhere", "ca /nowhere");
}

TEST_F(ValkeyOfCluster, WhatTheUserMayNotIsAnErrorWithASentence) {
  const std::string url = cluster_->url();
  const auto medium = open_at(url + "&prefix=other%3A").value();
  const Status status = put(*medium, 1, 10);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::io);
  EXPECT_NE(status.error().message.find("NOPERM"), std::string::npos) << status.error().message;
}

TEST_F(ValkeyOfCluster, ReadsItsPasswordFromAFile) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("password")) << "secret!\n";
  const std::string at = "127.0.0.1:" + std::to_string(cluster_->port(0)) + "?ca=" + cluster_->certificates().ca;
  EXPECT_TRUE(open_at("rediss://rota@" + at + "&password_file=" + folder.file("password")).ok());
  EXPECT_FALSE(open_at("rediss://rota@" + at + "&password_file=" + folder.file("none")).ok());
  EXPECT_FALSE(open_at("rediss://rota:x@" + at + "&password_file=" + folder.file("password")).ok());
}

// Slots of many pages go from master to master, key by key, while pages are read and written.
TEST_F(ValkeyOfCluster, SlotsMoveUnderLoad) {
  Load load(open(), 20s);
  auto servers = page_store::Servers::open(
      page_store::settings_of(page_store::read_url(cluster_->url()).value(), {}).value(), {.deadline = soon()});
  std::set<std::uint16_t> slots;
  for (std::uint32_t i = 0; i < Load::kPages; ++i) slots.insert(slot_of(i));
  const auto asked_in_between = [&](std::uint16_t slot) {
    for (std::uint32_t i = 0; i < Load::kPages; ++i) {
      if (slot_of(i) != slot) continue;
      page_store::Request request = page_store::with_key({"STRLEN", server_key_of(i)}, server_key_of(i));
      std::vector<page_store::Request> requests;
      requests.push_back(std::move(request));
      const auto replies = page_store::ask_all(*servers, std::move(requests), {.deadline = soon()});
      ASSERT_TRUE(replies.ok()) << replies.error().message;
      EXPECT_EQ(replies->front()->integer, Load::kBytes + 128);
    }
  };
  for (const std::uint16_t slot : slots) {
    const std::size_t from = cluster_->master_of(slot), to = (from + 1) % ValkeyCluster::kMasters;
    ASSERT_LT(from, ValkeyCluster::kMasters);
    const std::string number = std::to_string(slot);
    auto source = cluster_->node(from).admin(), target = cluster_->node(to).admin();
    EXPECT_EQ(target.say({"CLUSTER", "SETSLOT", number, "IMPORTING", cluster_->id(from)}), "OK");
    EXPECT_EQ(source.say({"CLUSTER", "SETSLOT", number, "MIGRATING", cluster_->id(to)}), "OK");
    for (;;) {
      std::istringstream keys(source.say({"CLUSTER", "GETKEYSINSLOT", number, "10"}));
      std::string key;
      if (!std::getline(keys, key)) break;
      const std::string moved = source.say(
          {"MIGRATE", "127.0.0.1", std::to_string(cluster_->port(to)), key, "0", "20000", "AUTH2", "admin", "admins"});
      EXPECT_TRUE(moved == "OK" || moved == "NOKEY") << moved;
    }
    asked_in_between(slot);  // it is the source's still, and its keys are at the target: ASK
    EXPECT_EQ(target.say({"CLUSTER", "SETSLOT", number, "NODE", cluster_->id(to)}), "OK");
    EXPECT_EQ(source.say({"CLUSTER", "SETSLOT", number, "NODE", cluster_->id(to)}), "OK");
    asked_in_between(slot);  // the map here is an old one: MOVED
  }
  load.end();
  EXPECT_GE((*servers)->redirections().ask, slots.size());
  EXPECT_GE((*servers)->redirections().moved, slots.size());
  EXPECT_EQ(load.wrong, 0);
  EXPECT_EQ(load.late, 0);
  EXPECT_EQ(load.failed, 0);
  EXPECT_GT(load.good, 100);
  RecordProperty("good", load.good);
}

// Comes last: it leaves a node dead.
TEST_F(ValkeyOfCluster, ZAMasterDiesUnderLoadAndItsReplicaTakesOver) {
  const auto medium = open();
  Load load(medium, 3s);
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(load.failed, 0);
  std::vector<PageKey> keys;
  std::vector<std::size_t> masters;  // slots were moved
  for (std::uint32_t i = 0; i < Load::kPages; ++i) {
    keys.push_back(key_of(i));
    masters.push_back(cluster_->master_of(slot_of(i)));
  }
  cluster_->node(1).stop();
  // Until its replica takes over, the other masters are asked.
  EXPECT_FALSE(medium->find(keys, soon()).ok());
  const auto found = medium->find_reachable(keys, soon());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found->unasked.has_value());
  for (std::uint32_t i = 0; i < Load::kPages; ++i) {
    EXPECT_EQ(found->pages[i].has(StoredPart::pages), masters[i] != 1) << i;
  }
  for (std::size_t i = 0; i < ValkeyCluster::kNodes; ++i) {
    if (i == 1) continue;
    EXPECT_EQ(cluster_->node(i).admin().say({"CONFIG", "SET", "cluster-node-timeout", "3000"}), "OK");
  }
  const auto all_there = [&] {
    for (std::uint32_t i = 0; i < Load::kPages; ++i) {
      if (!medium->get({key_of(i), StoredPart::pages}, in(1s)) || !put(*medium, i, Load::kBytes, in(1s))) return false;
    }
    return true;
  };
  EXPECT_TRUE(holds_within(60s, all_there));
  load.end();
  EXPECT_EQ(load.wrong, 0);
  EXPECT_EQ(load.late, 0) << load.longest_ms;
  EXPECT_GT(load.failed, 0);
  const int good = load.good;
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace rota::test
