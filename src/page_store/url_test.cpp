#include "page_store/url.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

// Where a store is, and what is no such place.

namespace rota::page_store {
namespace {

TEST(StoreUrl, FilesHaveAPath) {
  EXPECT_EQ(read_url("file:/var/cache/rota").value().path, "/var/cache/rota");
  EXPECT_EQ(read_url("file:///var/cache/rota").value().path, "/var/cache/rota");
  EXPECT_EQ(read_url("file:pages of mine?a%20b").value().path, "pages of mine?a%20b") << "nothing is special in it";
  EXPECT_EQ(read_url("file:x").value().kind, Url::Kind::files);
}

TEST(StoreUrl, ServersHaveHostAndPort) {
  const Url plain = read_url("valkey://example.org").value();
  EXPECT_EQ(plain.kind, Url::Kind::server);
  EXPECT_EQ(plain.host, "example.org");
  EXPECT_EQ(plain.port, 6379);
  EXPECT_FALSE(plain.tls);
  const Url whole = read_url("rediss://rota:p%40ss%3a@[::1]:7001/?ca=/etc/ca.pem&prefix=a%26b&ttl=60").value();
  EXPECT_TRUE(whole.tls);
  EXPECT_EQ(whole.user, "rota");
  EXPECT_EQ(whole.password, "p@ss:");
  EXPECT_EQ(whole.host, "::1");
  EXPECT_EQ(whole.port, 7001);
  EXPECT_EQ(whole.options.at("ca"), "/etc/ca.pem");
  EXPECT_EQ(whole.options.at("prefix"), "a&b");
  EXPECT_EQ(whole.options.at("ttl"), "60");
  EXPECT_EQ(read_url("redis://:secret@h").value().password, "secret");
  EXPECT_EQ(read_url("redis://:secret@h").value().user, "");
}

TEST(StoreUrl, OthersAreRefusedAndNoSecretIsSaid) {
  for (const std::string_view url : {"",
                                     "file:",
                                     "file://",
                                     "/var/cache",
                                     "http://secret@h",
                                     "valkey:secret",
                                     "valkey:/secret",
                                     "valkey://",
                                     "valkey://u:secret@",
                                     "valkey://u:secret@h:",
                                     "valkey://u:secret@h:0",
                                     "valkey://u:secret@h:65536",
                                     "valkey://u:secret@h:1x",
                                     "valkey://u:secret@[::1",
                                     "valkey://u:secret@[::1]x",
                                     "valkey://u:secret@h?x=1",
                                     "valkey://u:secret@h?ca",
                                     "valkey://u:secret%4@h",
                                     "valkey://u:secret%00@h",
                                     "valkey://u:secret%zz@h"}) {
    const auto read = read_url(url);
    ASSERT_FALSE(read.ok()) << url;
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_EQ(read.error().message.find("secret"), std::string::npos) << read.error().message;
  }
  EXPECT_FALSE(read_url(std::string_view("file:a\0b", 8)).ok());
}

}  // namespace
}  // namespace rota::page_store
