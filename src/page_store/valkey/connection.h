#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "page_store/valkey/reply.h"
#include "page_store/valkey/settings.h"
#include "page_store/valkey/waiting.h"

struct redisContext;  // NOLINT(readability-identifier-naming): of hiredis
struct ssl_st;

namespace rota::page_store {

// A connection of hiredis that never blocks. Used by one thread at a time.
class Connection {
 public:
  // Connected, with TLS if asked for, and as the settings' user.
  static Result<std::unique_ptr<Connection>> open(const Address& address, const Settings& settings, const Until& until);

  int socket() const noexcept;

  // To be sent; it stays where it is until it was.
  void queue(std::string_view bytes);
  bool wants_to_send() const noexcept { return is_sending_ || !queued_.empty(); }

  // As much as is possible now: how many bytes that was.
  Result<std::uint64_t> send();
  Result<std::uint64_t> receive();

  // The next reply, or null while it is not there.
  Result<std::unique_ptr<Reply>> next(const ReplyLimit& most, SpareTexts* spare = nullptr) {
    return reader_.next(most, spare);
  }

  // Nothing is on its way, as far as is known here: it can serve others.
  bool is_quiet() const;

  // One command and its reply.
  Result<std::unique_ptr<Reply>> call(std::string_view command, const ReplyLimit& most, const Until& until);

 private:
  using Context = std::unique_ptr<redisContext, void (*)(redisContext*)>;
  explicit Connection(Context context);

  static Result<std::unique_ptr<Connection>> open_socket(const Address& address, const Until& until);
  Status start_tls(const std::string& host, const Settings& settings, const Until& until);
  Status log_in(const Settings& settings, const Until& until);
  Error broken() const;

  Context context_;
  ssl_st* tls_ = nullptr;  // hiredis' own
  ReplyReader reader_;
  std::vector<char> received_;
  std::deque<std::string_view> queued_;
  bool is_sending_ = false;  // hiredis has bytes that are not sent yet
};

}  // namespace rota::page_store
