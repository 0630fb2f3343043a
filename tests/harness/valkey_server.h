#pragma once

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Real servers for tests, Redis' or Valkey's, on ports of this host that are free. They end with the test's process.

namespace rota::test {

inline const std::string kRedis = "/usr/bin/redis-server";
inline const std::string kValkey = std::string(ROTA_SOURCE_FOLDER) + "/build/valkey/valkey-server";

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rota-valkey-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a server");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port is free");
  }
  close(socket);
  return ntohs(address.sin_port);
}

// A CA, a certificate of 127.0.0.1 by it, and another CA.
class Certificates {
 public:
  explicit Certificates(const TemporaryFolder& folder) : ca(folder.file("ca.pem")), cert(folder.file("cert.pem")) {
    key = folder.file("key.pem");
    other_ca = folder.file("other.pem");
    const std::string new_key = " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes ";
    run("req -x509 -days 2 -subj /CN=ca" + new_key + "-keyout " + folder.file("ca.key") + " -out " + ca);
    run("req -x509 -days 2 -subj /CN=other" + new_key + "-keyout " + folder.file("other.key") + " -out " + other_ca);
    run("req -new -subj /CN=server" + new_key + "-keyout " + key + " -out " + folder.file("csr.pem"));
    std::ofstream(folder.file("san")) << "subjectAltName=IP:127.0.0.1\n";
    run("x509 -req -days 2 -CAcreateserial -in " + folder.file("csr.pem") + " -CA " + ca + " -CAkey " +
        folder.file("ca.key") + " -extfile " + folder.file("san") + " -out " + cert);
  }

  std::string ca, cert, key, other_ca;

 private:
  static void run(const std::string& arguments) {
    if (std::system(("openssl " + arguments + " >/dev/null 2>&1").c_str()) != 0) {
      throw std::runtime_error("openssl " + arguments);
    }
  }
};

// Speaks to a server as its administrator.
class Admin {
 public:
  struct To {
    std::uint16_t port = 0;
    std::string ca = {};  // empty: no TLS
    std::string user = {}, password = {};
  };

  explicit Admin(const To& to) : context_(redisConnectWithTimeout("127.0.0.1", to.port, {30, 0}), redisFree) {
    if (context_ == nullptr || context_->err != 0) throw std::runtime_error("no connection to the server");
    redisSetTimeout(context_.get(), {30, 0});
    if (!to.ca.empty()) {
      tls_.reset(redisCreateSSLContext(to.ca.c_str(), nullptr, nullptr, nullptr, nullptr, nullptr));
      if (redisInitiateSSLWithContext(context_.get(), tls_.get()) != REDIS_OK) throw std::runtime_error("no TLS");
    }
    if (!to.user.empty()) say({"AUTH", to.user, to.password});
  }

  // The answer's texts and numbers, one after the other.
  std::string say(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    void* const found = redisCommandArgv(context_.get(), static_cast<int>(texts.size()), texts.data(), sizes.data());
    const std::unique_ptr<redisReply, decltype(&freeReplyObject)> reply(static_cast<redisReply*>(found),
                                                                        freeReplyObject);
    return reply == nullptr ? std::string("no answer") : text_of(*reply);
  }

 private:
  static std::string text_of(const redisReply& reply) {
    if (reply.type == REDIS_REPLY_INTEGER) return std::to_string(reply.integer);
    if (reply.str != nullptr) return std::string(reply.str, reply.len);
    std::string all;
    for (std::size_t i = 0; i < reply.elements; ++i) all += text_of(*reply.element[i]) + "\n";
    return all;
  }

  struct FreeTls {
    void operator()(redisSSLContext* tls) const { redisFreeSSLContext(tls); }
  };
  std::unique_ptr<redisSSLContext, FreeTls> tls_;
  std::unique_ptr<redisContext, decltype(&redisFree)> context_;
};

template <class Condition>
bool holds_within(std::chrono::milliseconds most, const Condition& condition) {
  for (const auto end = std::chrono::steady_clock::now() + most; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return condition();
}

class ValkeyServer {
 public:
  struct Options {
    std::string program = kRedis;
    std::vector<std::string> lines = {};   // of its configuration
    const Certificates* tls = nullptr;     // plain without
    std::string user = {}, password = {};  // of the administrator, where the default user is off
    std::uint16_t port = 0;                // 0: any
  };

  explicit ValkeyServer(Options options) : options_(std::move(options)) {
    to_ = {.port = options_.port != 0 ? options_.port : free_port(),
           .ca = options_.tls != nullptr ? options_.tls->ca : std::string(),
           .user = options_.user,
           .password = options_.password};
    start();
  }
  ~ValkeyServer() { stop(); }
  ValkeyServer(const ValkeyServer&) = delete;
  ValkeyServer& operator=(const ValkeyServer&) = delete;

  std::uint16_t port() const { return to_.port; }
  Admin admin() const { return Admin(to_); }
  void signal(int number) const { kill(process_, number); }

  void stop() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(std::exchange(process_, 0), nullptr, 0);
  }

  void start() {
    write_configuration();
    const std::string file = folder_.file("conf"), log = folder_.file("log");
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const int to = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
                from = open("/dev/null", O_RDONLY);
      if (dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0 || dup2(from, STDIN_FILENO) < 0) _exit(1);
      execl(options_.program.c_str(), options_.program.c_str(), file.c_str(), nullptr);
      _exit(127);
    }
    const bool is_up = holds_within(std::chrono::seconds(60), [&] {
      try {
        return admin().say({"PING"}) == "PONG";
      } catch (const std::runtime_error&) {
        return false;
      }
    });
    if (!is_up) throw std::runtime_error("the server does not start");
  }

 private:
  void write_configuration() const {
    std::ofstream file(folder_.file("conf"));
    file << "bind 127.0.0.1\nsave \"\"\nappendonly no\ndir " << folder_.file(".") << "\n";
    if (options_.tls != nullptr) {
      file << "port 0\ntls-port " << port() << "\ntls-auth-clients optional\ntls-cert-file " << options_.tls->cert
           << "\ntls-key-file " << options_.tls->key << "\ntls-ca-cert-file " << options_.tls->ca << "\n";
    } else {
      file << "port " << port() << "\n";
    }
    for (const std::string& line : options_.lines) file << line << "\n";
  }

  Options options_;
  TemporaryFolder folder_;
  Admin::To to_;
  pid_t process_ = 0;
};

}  // namespace rota::test
