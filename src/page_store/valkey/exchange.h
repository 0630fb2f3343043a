#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "page_store/valkey/servers.h"

namespace rota::page_store {

// Requests to servers and their answers, many at a time, each to the server that has its slot; it follows what moves
// meanwhile. Used by one thread. Connections are its own as long as something is on its way.
//
//   queue_ --> line to a server: sent, answers in the same order --> answers_
//     ^                                |
//     +-- MOVED, ASK: elsewhere; TRYAGAIN, LOADING: later; a connection that broke: once more
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<Servers> servers, SpareTexts* spare = nullptr)
      : servers_(std::move(servers)), spare_(spare) {}
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Its number: 0, 1, 2...
  std::size_t add(Request request);

  // Sends and receives, and waits once if there was nothing to do.
  void step(const Until& until);

  struct Answer {
    std::size_t number = 0;
    Result<std::unique_ptr<Reply>> reply;  // an error that a server gave is an Error
  };
  std::optional<Answer> next_answer();
  bool has_answers() const noexcept { return !answers_.empty(); }
  bool is_done() const noexcept { return open_ == 0 && answers_.empty(); }

  // Of what was not answered: errors. Servers that were silent are left alone for a while.
  void give_up(const std::string& why);

  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

 private:
  struct Entry {
    Request request;
    std::optional<Address> at = {};  // where ASK sent it
    unsigned redirected = 0, broken = 0;
    Deadline not_before = {};
    std::string last_error = {};
    bool is_open = true;
  };
  static constexpr std::size_t kAsking = ~std::size_t{0};  // the answer to ASKING is for nobody

  struct Line {
    std::unique_ptr<Connection> connection;
    std::deque<std::size_t> waiting = {};
    Deadline alive_at = {};
    bool has_answered = false;
  };
  using Lines = std::map<Address, Line>;

  void start_queued(const Until& until);
  void start(std::size_t number, const Until& until);
  void put_on(Line& line, std::size_t number);
  std::optional<Address> place_of(const Entry& entry, const Until& until);
  void wait(const Until& until);
  // False: the line is gone.
  bool advance(Lines::iterator line, short ready);
  bool take_replies(Lines::iterator line);
  void take_reply(const Address& from, std::size_t number, std::unique_ptr<Reply> reply);
  void redirect(std::size_t number, const Redirection& redirection);
  void try_later(std::size_t number, const std::string& error);
  enum class Guilty : std::uint8_t { nobody, first };
  void break_line(Lines::iterator line, const Error& error, Guilty guilty);
  void finish(std::size_t number, Result<std::unique_ptr<Reply>> reply);

  std::shared_ptr<Servers> servers_;
  SpareTexts* spare_;
  std::deque<Entry> entries_;  // does not move what is in it
  std::deque<std::size_t> queue_;
  std::deque<Answer> answers_;
  Lines lines_;
  std::size_t open_ = 0;
  std::uint64_t received_bytes_ = 0;
};

// The answers in the order of the requests, each of which may be an error.
std::vector<Result<std::unique_ptr<Reply>>> ask_each(const std::shared_ptr<Servers>& servers,
                                                     std::vector<Request> requests, const Until& until);

// All answers in the order of the requests, or the first error.
Result<std::vector<std::unique_ptr<Reply>>> ask_all(const std::shared_ptr<Servers>& servers,
                                                    std::vector<Request> requests, const Until& until);

}  // namespace rota::page_store
