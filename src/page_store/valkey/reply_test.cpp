#include "page_store/valkey/reply.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "page_store/valkey/server_key.h"
#include "page_store/valkey/slot_map.h"

namespace rota::page_store {
namespace {

// Fed so many bytes at a time.
Result<std::vector<std::unique_ptr<Reply>>> read_all(std::string_view bytes, std::size_t step,
                                                     const ReplyLimit& most = {.bytes = 1000, .items = 100}) {
  ReplyReader reader;
  std::vector<std::unique_ptr<Reply>> replies;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    if (Status status = reader.feed(bytes.substr(at, step)); !status) return status.error();
    for (;;) {
      auto reply = reader.next(most);
      if (!reply) return reply.error();
      if (*reply == nullptr) break;
      replies.push_back(std::move(reply).value());
    }
  }
  EXPECT_TRUE(reader.is_empty()) << bytes;
  return replies;
}

TEST(ValkeyReply, IsTheSameInPiecesOfAnySize) {
  const std::string bytes =
      "+OK\r\n$3\r\na\r\n\r\n:-12\r\n$-1\r\n-ERR no\r\n*3\r\n:1\r\n*2\r\n$0\r\n\r\n$1\r\nx\r\n*-1\r\n*0\r\n";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    const auto replies = read_all(bytes, step);
    ASSERT_TRUE(replies.ok()) << replies.error().message;
    ASSERT_EQ(replies->size(), 7);
    EXPECT_EQ((*replies)[0]->kind, Reply::Kind::status);
    EXPECT_EQ((*replies)[1]->text, "a\r\n");
    EXPECT_EQ((*replies)[2]->integer, -12);
    EXPECT_EQ((*replies)[3]->kind, Reply::Kind::nil);
    EXPECT_EQ((*replies)[4]->text, "ERR no");
    const auto& list = (*replies)[5]->list;
    ASSERT_EQ(list.size(), 3);
    EXPECT_EQ(list[1]->list[1]->text, "x");
    EXPECT_EQ(list[2]->kind, Reply::Kind::nil);
    EXPECT_EQ((*replies)[6]->kind, Reply::Kind::list);
  }
}

TEST(ValkeyReply, ALongTextIsTheSameInPiecesAndInItsPlace) {
  std::string text(300'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
  const std::string one = "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  const std::string bytes = ":1\r\n" + one + one + "+OK\r\n" + one + ":2\r\n";
  SpareTexts spare;
  for (const std::size_t step : {1U, 7U, 4096U, 65'537U, 299'999U, 300'001U, 300'011U, 2'000'000U}) {
    for (const bool in_place : {false, true}) {
      ReplyReader reader;
      std::vector<std::unique_ptr<Reply>> replies;
      for (std::size_t at = 0; at < bytes.size();) {
        std::string_view piece = std::string_view(bytes).substr(at, step);
        if (const std::span<char> place = reader.place(); in_place && !place.empty()) {
          piece = piece.substr(0, place.size());
          std::ranges::copy(piece, place.begin());
          reader.placed(piece.size());
        } else {
          ASSERT_TRUE(reader.feed(piece).ok());
        }
        at += piece.size();
        for (auto reply = reader.next({.bytes = text.size()}, &spare).value(); reply != nullptr;
             reply = reader.next({.bytes = text.size()}, &spare).value()) {
          replies.push_back(std::move(reply));
        }
      }
      EXPECT_TRUE(reader.is_empty());
      ASSERT_EQ(replies.size(), 6) << step;
      for (const std::size_t i : {1U, 2U, 4U}) {
        EXPECT_TRUE(replies[i]->whole_text() == text) << step;
        spare.give(std::move(replies[i]->long_text), replies[i]->long_bytes);
      }
      EXPECT_EQ(replies[3]->text, "OK");
      EXPECT_EQ(replies[5]->integer, 2);
    }
  }
}

TEST(ValkeyReply, ALongTextWithoutItsEndIsNone) {
  const std::string text = "$100000\r\n" + std::string(100'000, 'x');
  EXPECT_FALSE(read_all(text + "x\n:1\r\n", 4096, {.bytes = 100'000}).ok());
  EXPECT_FALSE(read_all("$100001\r\n" + std::string(100'000, 'x') + "\r\n:1\r\n", 4096, {.bytes = 100'001}).ok());
}

TEST(ValkeyReply, ALineWithoutItsEndIsNoneHoweverMuchWasAskedFor) {
  const ReplyLimit much{.bytes = std::uint64_t{1} << 30, .items = 10};
  for (const std::string begin : {"-", "+", ":", "$", "*1\r\n-", "$1000000"}) {
    const auto read = read_all(begin + std::string(5000, '1'), 1000, much);
    ASSERT_FALSE(read.ok()) << begin;
    EXPECT_EQ(read.error().code, Errc::io) << begin;
  }
  const std::string text = "*2\r\n$9000\r\n" + std::string(9000, '1') + "\r\n:1\r\n";
  EXPECT_TRUE(read_all(text, 1000, much).ok());
}

TEST(ValkeyReply, MayTakeWhatWasAskedForAndNoMore) {
  const auto of = [](std::size_t bytes) {
    return "$" + std::to_string(bytes) + "\r\n" + std::string(bytes, 'x') + "\r\n";
  };
  EXPECT_TRUE(read_all(of(100'000), 1000, {.bytes = 100'000}).ok());
  EXPECT_FALSE(read_all(of(110'000), 1000, {.bytes = 100'000}).ok());
  EXPECT_FALSE(read_all(of(110'000), 200'000, {.bytes = 100'000}).ok());
}

TEST(ValkeyReply, IsNoneInListsOfListsOfLists) {
  const auto nested = [](int depth) {
    std::string bytes;
    for (int i = 0; i < depth; ++i) bytes += "*1\r\n";
    return bytes + ":1\r\n";
  };
  EXPECT_TRUE(read_all(nested(4), 1).ok());
  EXPECT_FALSE(read_all(nested(20), 1).ok());
}

TEST(ValkeySlots, AreThoseOfTheSpecification) {
  EXPECT_EQ(slot_of("123456789"), 0x31c3);
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
  EXPECT_NE(slot_of("foo{}{bar}"), slot_of("bar"));
  EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
}

TEST(ValkeySlots, MapsHaveTheMastersOfAll) {
  const auto replies = read_all(
      "*2\r\n*3\r\n:0\r\n:99\r\n*2\r\n$0\r\n\r\n:7000\r\n*4\r\n:200\r\n:16383\r\n*3\r\n$8\r\n10.0.0.1\r\n:7001"
      "\r\n$2\r\nid\r\n*2\r\n$8\r\n10.0.0.2\r\n:7002\r\n",
      7);
  ASSERT_TRUE(replies.ok()) << replies.error().message;
  auto map = SlotMap::read(*replies->front(), "asked");
  ASSERT_TRUE(map.ok()) << map.error().message;
  EXPECT_EQ(map->masters(), (std::vector<Address>{{"asked", 7000}, {"10.0.0.1", 7001}}));
  EXPECT_EQ(map->master_of(99), (Address{"asked", 7000}));
  EXPECT_FALSE(map->master_of(100).has_value());
  EXPECT_EQ(map->master_of(16383), (Address{"10.0.0.1", 7001}));
  map->move(99, {"10.0.0.3", 7003});
  EXPECT_EQ(map->master_of(99), (Address{"10.0.0.3", 7003}));
}

TEST(ValkeySlots, RedirectionsAreRead) {
  const auto moved = read_redirection("MOVED 3999 127.0.0.1:6381", "asked");
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->is_ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->to, (Address{"127.0.0.1", 6381}));
  const auto ask = read_redirection("ASK 5 ::1:6381", "asked");
  ASSERT_TRUE(ask.has_value());
  EXPECT_TRUE(ask->is_ask);
  EXPECT_EQ(ask->to, (Address{"::1", 6381}));
  const auto same = read_redirection("MOVED 5 :6381", "asked");
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->to.host, "asked");
  for (const char* other :
       {"MOVED", "MOVED 5", "MOVED x a:1", "MOVED 16384 a:1", "ASK 5 a:0", "ASK 5 a:65536", "ERR"}) {
    EXPECT_FALSE(read_redirection(other, "asked").has_value()) << other;
  }
}

TEST(ValkeyKeys, ComeBackAsTheNamesTheyAreOf) {
  for (const StoredPart part : kStoredParts) {
    const ObjectName name{page_key(std::string(64, 'a')).value(), part};
    for (const std::string_view prefix : {"rota:", "", "{x}"}) {
      EXPECT_EQ(read_server_key(prefix, server_key(prefix, name)), name);
      EXPECT_FALSE(read_server_key("other", server_key(prefix, name)).has_value());
    }
    EXPECT_FALSE(read_server_key("", server_key("", name) + "x").has_value());
  }
  for (const std::string_view key : {"", "{", "rota:{a}.pages"}) EXPECT_FALSE(read_server_key("", key).has_value());
  EXPECT_EQ(key_pattern("a*[b]?\\"), "a\\*\\[b\\]\\?\\\\{*");
}

}  // namespace
}  // namespace rota::page_store
