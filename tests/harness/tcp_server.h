#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rota::test {

// Accepts connections on a free port of this host; `serve` has each, on a thread of its own, until it returns.
class TcpServer {
 public:
  using Serve = std::function<void(int socket, const std::atomic<bool>& is_over)>;

  explicit TcpServer(Serve serve) : serve_(std::move(serve)), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(socket_, 16) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no server");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~TcpServer() {
    is_over_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(socket_);
  }
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const { return port_; }
  int accepted() const { return accepted_; }

  // What comes next, empty at the end.
  static std::string receive(int socket, const std::atomic<bool>& is_over) {
    std::string bytes(1 << 16, '\0');
    while (!is_over) {
      pollfd ready{.fd = socket, .events = POLLIN};
      if (poll(&ready, 1, 20) <= 0) continue;
      const ssize_t size = recv(socket, bytes.data(), bytes.size(), 0);
      bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
      return bytes;
    }
    return {};
  }

  static bool send_all(int socket, std::string_view bytes, const std::atomic<bool>& is_over) {
    while (!bytes.empty() && !is_over) {
      pollfd ready{.fd = socket, .events = POLLOUT};
      if (poll(&ready, 1, 20) <= 0) continue;
      const ssize_t size = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(size));
    }
    return !is_over;
  }

 private:
  void accept_all() {
    while (!is_over_) {
      pollfd ready{.fd = socket_, .events = POLLIN};
      if (poll(&ready, 1, 20) <= 0) continue;
      const int connection = accept(socket_, nullptr, nullptr);
      ++accepted_;
      threads_.emplace_back([this, connection] {
        serve_(connection, is_over_);
        close(connection);
      });
    }
  }

  const Serve serve_;
  const int socket_;
  std::uint16_t port_ = 0;
  std::atomic<bool> is_over_ = false;
  std::atomic<int> accepted_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace rota::test
