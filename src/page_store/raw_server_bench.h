#pragma once

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// What a server, named by its IPv4 address, gives at most to one connection: GET after GET, a few of them asked for in
// advance, each reply read straight into one place. No header, no checksum, no cache. With TLS the server's certificate
// is not looked at: that costs nothing per page.

namespace rota::page_store::bench {

enum class Wire { plain, tls };

class RawServer {
 public:
  RawServer(Wire wire, const std::string& host, int port, std::size_t most_bytes) : place_(most_bytes + 64) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) fail();
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail();
    if (wire == Wire::plain) return;
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_mode(context_.get(), SSL_MODE_AUTO_RETRY);
    tls_.reset(SSL_new(context_.get()));
    SSL_set_fd(tls_.get(), socket_);
    if (SSL_connect(tls_.get()) != 1) fail();
  }
  ~RawServer() {
    tls_.reset();
    close(socket_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  void get(std::span<const std::string> keys) {
    std::size_t asked = 0;
    for (std::size_t answered = 0; answered < keys.size(); ++answered) {
      for (; asked < std::min(keys.size(), answered + kAhead); ++asked) {
        send_all("*2\r\n$3\r\nGET\r\n$" + std::to_string(keys[asked].size()) + "\r\n" + keys[asked] + "\r\n");
      }
      take_reply();
    }
  }

 private:
  static constexpr std::size_t kAhead = 8;

  [[noreturn]] static void fail() { throw std::runtime_error("the raw connection failed"); }

  void send_all(std::string_view text) {
    const auto sent = tls_ ? SSL_write(tls_.get(), text.data(), static_cast<int>(text.size()))
                           : static_cast<int>(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL));
    if (sent != static_cast<int>(text.size())) fail();
  }

  // Bytes from `have_` on.
  void receive() {
    const std::span<char> room = std::span(place_).subspan(have_);
    const int got = tls_ ? SSL_read(tls_.get(), room.data(), static_cast<int>(room.size()))
                         : static_cast<int>(recv(socket_, room.data(), room.size(), 0));
    if (got <= 0) fail();
    have_ += static_cast<std::size_t>(got);
  }

  void take_reply() {
    std::string_view line;
    while (line = std::string_view(place_.data(), have_), line.find("\r\n") == std::string_view::npos) receive();
    std::size_t bytes = 0;
    const std::size_t head = line.find("\r\n") + 2;
    const auto read = std::from_chars(line.data() + 1, line.data() + head - 2, bytes);
    if (line.front() != '$' || read.ec != std::errc() || head + bytes + 2 > place_.size()) fail();
    while (have_ < head + bytes + 2) receive();
    have_ -= head + bytes + 2;
    std::memmove(place_.data(), place_.data() + head + bytes + 2, have_);  // the beginning of the next
  }

  struct Free {
    void operator()(SSL* tls) const noexcept { SSL_free(tls); }
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
  };

  std::vector<char> place_;
  std::size_t have_ = 0;
  int socket_ = -1;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
};

}  // namespace rota::page_store::bench
