#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>

#include "harness/tcp_server.h"
#include "harness/valkey_server.h"
#include "harness/valkey_store.h"

// Servers that answer anything, and networks that lose it.

namespace rota::test {
namespace {

using namespace std::chrono_literals;

const std::string kNoCluster = "-ERR This instance has cluster support disabled\r\n";

std::string url_of(std::uint16_t port) { return "valkey://127.0.0.1:" + std::to_string(port); }

// Answers CLUSTER SLOTS with `slots`, and all else with `answer`, piece by piece.
struct Hostile {
  std::vector<std::string> answer;
  bool then_closes = false;
  std::string slots = kNoCluster;
  std::chrono::milliseconds pause = {};  // before each piece
  std::string repeated = {};             // without end

  void operator()(int socket, const std::atomic<bool>& is_over) const {
    for (std::string got = TcpServer::receive(socket, is_over); !got.empty();
         got = TcpServer::receive(socket, is_over)) {
      if (got.find("SLOTS") != std::string::npos) {
        if (!TcpServer::send_all(socket, slots, is_over)) return;
        continue;
      }
      for (const std::string& piece : answer) {
        std::this_thread::sleep_for(pause);
        if (!TcpServer::send_all(socket, piece, is_over)) return;
      }
      while (!repeated.empty()) {
        if (!TcpServer::send_all(socket, repeated, is_over)) return;
      }
      if (then_closes) return;
    }
  }
};

// Of memory since the last begin_peak().
void begin_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

// Whatever is asked ends with an error in time, and takes little memory.
void expect_errors(const Hostile& hostile, const std::string& name) {
  const TcpServer server(hostile);
  begin_peak();
  const std::uint64_t before = peak_bytes();
  // Each with a store of its own, which leaves the server alone for nothing that was before.
  const auto timed = [&](const char* what, const auto& call) {
    const auto medium = open_at(url_of(server.port()), 10s).value();
    const Deadline begin = Clock::now();
    const Status status = call(*medium);
    EXPECT_FALSE(status.ok()) << name << ": " << what;
    const Errc code = status ? Errc::io : status.error().code;
    EXPECT_EQ(code, Errc::io) << name << ": " << what;
    EXPECT_LT(Clock::now() - begin, 10s) << name << ": " << what;
  };
  const ObjectName object{key_of(1), StoredPart::pages};
  timed("get", [&](Medium& medium) {
    const auto got = medium.get(object, in(100ms));
    return got ? Status() : got.error();
  });
  timed("fetch", [&](Medium& medium) {
    auto fetch = medium.fetch({{object, 1000}, {object, 1000}}, 100ms).value();
    std::vector<std::byte> bytes(1000);
    return fetch->read(0, 0, bytes);
  });
  timed("find", [&](Medium& medium) {
    const std::vector keys{key_of(1)};
    const auto found = medium.find(keys, in(100ms));
    return found ? Status() : found.error();
  });
  timed("put", [&](Medium& medium) { return put(medium, 1, 1'000'000, in(100ms)); });
  timed("list", [&](Medium& medium) { return medium.list([](const StoredPage&) { return Status(); }, in(100ms)); });
  EXPECT_LT(peak_bytes() - before, 100U << 20) << name;
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(ValkeyHostile, AnswersThatAreNoneAreErrors) {
  for (const std::string answer : {
           "HTTP/1.1 400 Bad Request\r\n\r\n",
           "\r\n",
           "$-2\r\n",
           "$abc\r\n",
           "$9223372036854775807\r\n",
           "$99999999999999999999999\r\n",
           "*-7\r\n",
           "*1000000000000\r\n",
           "*4294967295\r\n",
           "%1\r\n+a\r\n+b\r\n",
           "~1\r\n+a\r\n",
           "#t\r\n",
           ",1.5\r\n",
           "(12345\r\n",
           "=7\r\ntxt:abc\r\n",
           ">2\r\n+a\r\n+b\r\n",
           "*2\r\n$1\r\n7\r\n+text\r\n",
           "*0\r\n",
           "*-1\r\n",
           "+NO\r\n",
           "-ERR no\r\n",
           "-\r\n",
           "-MOVED\r\n",
           "-MOVED 1\r\n",
           "-MOVED 99999 127.0.0.1:1\r\n",
           "-MOVED 1 127.0.0.1:99999\r\n",
           "-ASK 1 :0\r\n",
           "-TRYAGAIN later\r\n",
           "-LOADING it\r\n",
           "-CLUSTERDOWN it\r\n",
           "-MOVED 1 127.0.0.1:1\r\n",
           "-ASK 1 127.0.0.1:1\r\n",
       }) {
    expect_errors({.answer = {answer}}, answer.substr(0, 30));
  }
}

TEST(ValkeyHostile, AnswersThatEndEarlyOrNeverAreErrors) {
  expect_errors({.answer = {"$100\r\nabc"}, .then_closes = true}, "truncated");
  expect_errors({.answer = {"$100\r\nabc"}}, "and silence");
  expect_errors({.answer = {}, .then_closes = true}, "closed");
  expect_errors({.answer = {}}, "silence");
  // Half a minute of bytes: who waits anew after each of them is late by far.
  expect_errors({.answer = std::vector<std::string>(1000, "$"), .pause = 30ms}, "a trickle");
  std::vector<std::string> trickle(1000, "x");
  trickle[0] = "$1128\r\n";
  expect_errors({.answer = trickle, .pause = 30ms}, "a trickle that could be one");
}

TEST(ValkeyHostile, AnswersWithoutEndTakeLittleMemory) {
  const std::string much(1 << 16, 'x');
  expect_errors({.answer = {"-"}, .repeated = much}, "an error without end");
  expect_errors({.answer = {"+"}, .repeated = much}, "a status without end");
  expect_errors({.answer = {repeat("*1\r\n", 100'000)}}, "lists within lists");
  expect_errors({.answer = {repeat("*1000000\r\n", 100'000)}}, "long lists within lists");
  expect_errors({.answer = {"*1000000\r\n"}, .repeated = repeat("*0\r\n", 10'000)}, "a list without end");
  expect_errors({.answer = {}, .repeated = repeat("-ERR\r\n", 1000)}, "answers to nothing");
}

TEST(ValkeyHostile, ServersThatSendEachOtherRequestsAreErrors) {
  std::atomic<std::uint16_t> port = 0;
  const TcpServer server([&](int socket, const std::atomic<bool>& is_over) {
    while (true) {
      const std::string got = TcpServer::receive(socket, is_over);
      if (got.empty()) return;
      const std::string slots =
          "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(port) + "\r\n";
      const std::string word = got.find("GET") != std::string::npos ? "-MOVED" : "-ASK";
      const std::string sent_on = word + " 5 127.0.0.1:" + std::to_string(port) + "\r\n";
      if (!TcpServer::send_all(socket, got.find("SLOTS") != std::string::npos ? slots : sent_on, is_over)) return;
    }
  });
  port = server.port();
  const auto medium = open_at(url_of(port)).value();
  const auto got = medium->get({key_of(1), StoredPart::pages}, in(20s));
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("sent on 16 times"), std::string::npos) << got.error().message;
  EXPECT_FALSE(put(*medium, 1, 100, in(300ms)).ok());
}

TEST(ValkeyHostile, MapsOfSlotsThatAreNoneAreErrors) {
  for (const std::string slots : {
           "*1\r\n+x\r\n",
           "*1\r\n*0\r\n",
           "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:70000\r\n",
           "*1\r\n*3\r\n:0\r\n:5\r\n+x\r\n",
           ":5\r\n",
           "-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n",
       }) {
    const TcpServer server(Hostile{.slots = slots});
    const auto medium = open_at(url_of(server.port()), 10s);
    ASSERT_FALSE(medium.ok()) << slots;
    EXPECT_EQ(medium.error().code, Errc::io);
    EXPECT_NE(medium.error().message.find("SLOTS"), std::string::npos) << medium.error().message;
  }
  // Slots of nobody, or of a node that is not there.
  expect_errors({.slots = "*0\r\n"}, "nobody's");
  expect_errors({.slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n"}, "nowhere");
}

TEST(ValkeyHostile, AServerThatRepeatsThePasswordDoesNotBringItIntoMessages) {
  const TcpServer server(
      Hostile{.answer = {"-ERR unknown command 'AUTH', with args beginning with: 'rota' 'topsecret'\r\n"}});
  const auto medium = open_at("valkey://rota:topsecret@127.0.0.1:" + std::to_string(server.port()), 10s);
  ASSERT_FALSE(medium.ok());
  EXPECT_NE(medium.error().message.find("AUTH of user rota was refused"), std::string::npos);
  EXPECT_EQ(medium.error().message.find("topsecret"), std::string::npos);
}

// Each way takes 20 ms, and what is sent meanwhile goes on together: who waits for an answer before the next request
// sends a piece for each of them.
TEST(ValkeyNetwork, OverALongWayManyKeysAreAskedForTogether) {
  ValkeyServer server({.program = kRedis});
  std::atomic<int> pieces = 0;  // from the client
  const TcpServer relay([&](int client, const std::atomic<bool>& is_over) {
    const int upstream = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(upstream, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return;
    const auto forward = [&](int from, int to) {
      for (std::string got = TcpServer::receive(from, is_over); !got.empty(); got = TcpServer::receive(from, is_over)) {
        pieces += from == client ? 1 : 0;
        std::this_thread::sleep_for(20ms);
        if (!TcpServer::send_all(to, got, is_over)) break;
      }
      shutdown(to, SHUT_RDWR);
    };
    std::thread back(forward, upstream, client);
    forward(client, upstream);
    back.join();
    close(upstream);
  });
  const auto medium = open_at(url_of(relay.port())).value();
  std::vector<PageKey> keys;
  std::vector<page_store::Wanted> wanted;
  for (std::uint32_t i = 0; i < 100; ++i) {
    keys.push_back(key_of(i));
    if (i < 20) {
      ASSERT_TRUE(put(*medium, i, 100).ok());
      wanted.push_back({{key_of(i), StoredPart::pages}, 100});
    }
  }
  EXPECT_GE(pieces, 20) << "one for each put";
  pieces = 0;
  ASSERT_TRUE(medium->find(keys, soon()).ok());
  EXPECT_LT(pieces, 10) << "of 100 keys";
  pieces = 0;
  auto fetch = medium->fetch(wanted, 20s).value();
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_TRUE(fetch->read(i, 0, bytes).ok());
  EXPECT_LT(pieces, 10) << "of 20 objects";
}

// A network of the test's own, in which nothing arrives while it is down. Threads and servers that are started in it
// belong to it.
template <class Body>
void in_own_network(const Body& body) {
  bool is_there = false;
  std::thread([&] {
    is_there = unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up 2>/dev/null") == 0;
    if (is_there) body();
  }).join();
  ASSERT_TRUE(is_there) << "networks of one's own are root's";
}

void set_network(const char* state) { ASSERT_EQ(std::system((std::string("ip link set lo ") + state).c_str()), 0); }

TEST(ValkeyNetwork, WhenNothingArrivesCallsEndAtTheirDeadline) {
  in_own_network([] {
    ValkeyServer server({.program = kRedis});
    const auto medium = open_at(url_of(server.port())).value();
    ASSERT_TRUE(put(*medium, 1, 100).ok());
    const auto get = [&] { return medium->get({key_of(1), StoredPart::pages}, in(300ms)).ok(); };
    ASSERT_TRUE(medium->get({key_of(1), StoredPart::pages}, soon()).ok());
    set_network("down");
    const Deadline begin = Clock::now();
    EXPECT_FALSE(get());
    EXPECT_GE(Clock::now() - begin, 290ms);
    EXPECT_LT(Clock::now() - begin, 2s);
    set_network("up");
    EXPECT_TRUE(holds_within(30s, get));
  });
}

TEST(ValkeyNetwork, AFetchWhoseNetworkGoesDownLosesPatience) {
  in_own_network([] {
    ValkeyServer server({.program = kRedis});
    const auto medium = open_at(url_of(server.port())).value();
    ASSERT_TRUE(put(*medium, 1, 8'000'000).ok());
    auto fetch =
        medium->fetch(std::vector<page_store::Wanted>(20, {{key_of(1), StoredPart::pages}, 8'000'000}), 3s).value();
    std::vector<std::byte> bytes(8'000'000);
    ASSERT_TRUE(fetch->read(0, 0, bytes).ok());
    set_network("down");
    const Deadline begin = Clock::now();
    std::size_t good = 1;
    while (good < 20 && fetch->read(good, 0, bytes).ok()) ++good;
    EXPECT_LT(good, 20);
    EXPECT_LT(Clock::now() - begin, 20s);
  });
}

// The server's end of a connection is gone, and the client was never told.
TEST(ValkeyNetwork, AHalfOpenConnectionIsMadeAnew) {
  in_own_network([] {
    ValkeyServer server({.program = kRedis});
    const auto medium = open_at(url_of(server.port())).value();
    ASSERT_TRUE(put(*medium, 1, 100).ok());
    set_network("down");
    server.stop();
    set_network("up");
    server.start();
    const Status status = put(*medium, 1, 100, in(20s));
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

}  // namespace
}  // namespace rota::test
