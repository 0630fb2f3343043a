#include "page_store/valkey/exchange.h"

#include <algorithm>
#include <array>
#include <functional>

#include "core/error.h"

namespace rota::page_store {
namespace {

using std::chrono::milliseconds;

constexpr unsigned kMostRedirections = 16;
constexpr unsigned kFreeRedirections = 4;  // beyond them each waits a little
constexpr milliseconds kTryLater{20};
constexpr milliseconds kFairWait{50};  // who is silent for less may be alive

// Answers of a cluster that is about to change, or of a server that starts.
constexpr std::array<std::string_view, 4> kPassing{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"};

const std::string& asking() {
  static const std::string only = command({"ASKING"});
  return only;
}

Error at(const Address& address, const std::string& what) {
  return {Errc::io, core::text("Valkey server {}: {}", text(address), what)};
}

}  // namespace

Exchange::~Exchange() {
  for (auto& [address, line] : lines_) {
    // Without memory for its number a connection is closed, and a server is thought well of.
    static_cast<void>(core::guarded([&]() -> Status {
      if (line.waiting.empty()) {
        servers_->give_back(address, std::move(line.connection));
      } else if (!line.has_answered) {
        servers_->undecided(address);
      }
      return {};
    }));
  }
}

std::size_t Exchange::add(Request request) {
  entries_.push_back({.request = std::move(request)});
  queue_.push_back(entries_.size() - 1);
  ++open_;
  return entries_.size() - 1;
}

std::optional<Exchange::Answer> Exchange::next_answer() {
  if (answers_.empty()) return {};
  Answer answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

void Exchange::finish(std::size_t number, Result<std::unique_ptr<Reply>> reply) {
  Entry& entry = entries_[number];
  if (!entry.is_open) return;
  entry.is_open = false;
  --open_;
  answers_.push_back({number, std::move(reply)});
}

void Exchange::step(const Until& until) {
  start_queued(until);
  if (answers_.empty() && open_ > 0) wait(until);
}

void Exchange::start_queued(const Until& until) {
  const Deadline now = Clock::now();
  std::deque<std::size_t> later;
  // What start() queues again comes in the next step.
  std::deque<std::size_t> queued = std::exchange(queue_, {});
  for (const std::size_t number : queued) {
    if (entries_[number].not_before > now) {
      later.push_back(number);
    } else {
      start(number, until);
    }
  }
  queue_.insert(queue_.begin(), later.begin(), later.end());
  for (auto line = lines_.begin(); line != lines_.end();) {
    const auto current = line++;
    if (current->second.connection->wants_to_send()) advance(current, POLLOUT);
  }
}

// Where nobody has the slot, who has which is asked once.
std::optional<Address> Exchange::place_of(const Entry& entry, const Until& until) {
  if (entry.at) return entry.at;
  if (entry.request.at) return entry.request.at;
  auto place = servers_->master_of(entry.request.slot);
  if (place) return place;
  if (servers_->refresh(until)) place = servers_->master_of(entry.request.slot);
  return place;
}

void Exchange::start(std::size_t number, const Until& until) {
  Entry& entry = entries_[number];
  auto place = place_of(entry, until);
  if (!place) {
    return try_later(number, core::text("Valkey cluster: no node has slot {}", entry.request.slot));
  }
  if (const auto line = lines_.find(*place); line != lines_.end()) return put_on(line->second, number);
  auto connection = servers_->connection_to(*place, until);
  if (!connection && !entry.request.at && servers_->is_cluster()) {
    // Another node may have taken its place.
    entry.at.reset();
    if (servers_->refresh(until)) {
      const auto now_at = servers_->master_of(entry.request.slot);
      if (now_at && *now_at != *place && ++entry.redirected <= kMostRedirections) {
        queue_.push_back(number);
        return;
      }
    }
  }
  if (!connection) return finish(number, connection.error());
  Line& line = lines_[*place];
  line = {.connection = std::move(connection).value(), .alive_at = Clock::now()};
  put_on(line, number);
}

void Exchange::put_on(Line& line, std::size_t number) {
  const Entry& entry = entries_[number];
  if (line.waiting.empty()) line.alive_at = Clock::now();
  if (entry.at) {
    line.connection->queue(asking());
    line.waiting.push_back(kAsking);
  }
  const std::span<const std::byte> value = entry.request.value;
  line.connection->queue(entry.request.head);
  line.connection->queue({reinterpret_cast<const char*>(value.data()), value.size()});
  line.connection->queue(entry.request.tail);
  line.waiting.push_back(number);
}

void Exchange::wait(const Until& until) {
  Until soon = until;
  for (const std::size_t number : queue_) soon.deadline = std::min(soon.deadline, entries_[number].not_before);
  std::vector<pollfd> ready;
  for (const auto& [address, line] : lines_) {
    const short events = line.connection->wants_to_send() ? POLLIN | POLLOUT : POLLIN;
    ready.push_back({.fd = line.connection->socket(), .events = events});
  }
  if (!wait_for_any(ready, soon)) return;
  auto line = lines_.begin();
  for (const pollfd& one : ready) {
    const auto current = line++;
    if (one.revents != 0) advance(current, one.revents);
  }
}

bool Exchange::advance(Lines::iterator line, short ready) {
  Connection& connection = *line->second.connection;
  if ((ready & POLLOUT) != 0) {
    const auto sent = connection.send();
    // The answer may say why the connection was closed.
    if (!sent && (ready & POLLIN) == 0) {
      break_line(line, sent.error(), Guilty::nobody);
      return false;
    }
    if (sent && *sent > 0) line->second.alive_at = Clock::now();
  }
  if ((ready & ~POLLOUT) == 0) return true;
  const auto received = connection.receive();
  if (!received) {
    break_line(line, received.error(), Guilty::nobody);
    return false;
  }
  received_bytes_ += *received;
  if (*received > 0) {
    line->second.alive_at = Clock::now();
    if (!std::exchange(line->second.has_answered, true)) servers_->answered(line->first);
  }
  return take_replies(line);
}

bool Exchange::take_replies(Lines::iterator line) {
  const Address from = line->first;
  std::deque<std::size_t>& waiting = line->second.waiting;
  for (;;) {
    const bool is_entry = !waiting.empty() && waiting.front() != kAsking;
    auto reply =
        line->second.connection->next(is_entry ? entries_[waiting.front()].request.most : ReplyLimit(), spare_);
    if (!reply) {
      break_line(line, reply.error(), Guilty::first);
      return false;
    }
    if (*reply == nullptr) return true;
    if (waiting.empty()) {
      break_line(line, {Errc::io, "an answer to nothing"}, Guilty::nobody);
      return false;
    }
    const std::size_t number = waiting.front();
    waiting.pop_front();
    if (number != kAsking) take_reply(from, number, std::move(reply).value());
    if (waiting.empty() && line->second.connection->wants_to_send()) {
      break_line(line, {Errc::io, "an answer before the request was sent"}, Guilty::nobody);
      return false;
    }
  }
}

void Exchange::take_reply(const Address& from, std::size_t number, std::unique_ptr<Reply> reply) {
  if (reply->kind != Reply::Kind::error) return finish(number, std::move(reply));
  entries_[number].at.reset();
  if (const auto redirection = read_redirection(reply->text, from.host)) return redirect(number, *redirection);
  const std::string_view word = std::string_view(reply->text).substr(0, reply->text.find(' '));
  const Error error = at(from, reply->text.substr(0, 200));
  // A node that was a master a moment ago; a server by itself stays what it is.
  const bool was_master = word == "READONLY" && servers_->is_cluster();
  if (was_master || std::ranges::find(kPassing, word) != kPassing.end()) return try_later(number, error.message);
  finish(number, error);
}

void Exchange::redirect(std::size_t number, const Redirection& redirection) {
  Entry& entry = entries_[number];
  auto& counters = servers_->redirections();
  ++(redirection.is_ask ? counters.ask : counters.moved);
  if (++entry.redirected > kMostRedirections) {
    return finish(number, at(redirection.to, core::text("sent on {} times, and not answered", kMostRedirections)));
  }
  if (redirection.is_ask) {
    entry.at = redirection.to;
  } else {
    servers_->moved(redirection);
    if (!servers_->is_cluster()) entry.request.at = redirection.to;
  }
  if (entry.redirected > kFreeRedirections) entry.not_before = Clock::now() + kTryLater;
  queue_.push_back(number);
}

void Exchange::try_later(std::size_t number, const std::string& error) {
  Entry& entry = entries_[number];
  ++servers_->redirections().again;
  entry.last_error = error;
  entry.not_before = Clock::now() + kTryLater;
  // It may be another's by now.
  if (servers_->is_cluster() && error.find("TRYAGAIN") == std::string::npos)
    (void)servers_->refresh({.deadline = entry.not_before});
  queue_.push_back(number);
}

void Exchange::break_line(Lines::iterator line, const Error& error, Guilty guilty) {
  const Address address = line->first;
  const std::deque<std::size_t> waiting = std::move(line->second.waiting);
  lines_.erase(line);
  servers_->close_free(address);
  bool is_first = true;
  for (const std::size_t number : waiting) {
    if (number == kAsking) continue;
    Entry& entry = entries_[number];
    entry.at.reset();
    const bool is_guilty = guilty == Guilty::first && std::exchange(is_first, false);
    if (is_guilty || ++entry.broken > 1) {
      finish(number, at(address, error.message));
    } else {
      queue_.push_back(number);
    }
  }
}

void Exchange::give_up(const std::string& why) {
  const Deadline now = Clock::now();
  for (auto& [address, line] : lines_) {
    if (line.waiting.empty()) continue;
    if (now - line.alive_at >= kFairWait) {
      servers_->failed(address, {Errc::io, "it does not answer"});
    } else {
      servers_->undecided(address);
    }
    line.connection.reset();
  }
  for (const auto& [address, line] : lines_) {
    for (const std::size_t number : line.waiting) {
      if (number != kAsking) finish(number, at(address, why));
    }
  }
  std::erase_if(lines_, [](const auto& line) { return line.second.connection == nullptr; });
  for (const std::size_t number : std::exchange(queue_, {})) {
    const std::string& last = entries_[number].last_error;
    finish(number, Error{Errc::io, last.empty() ? core::text("Valkey: {}", why) : core::text("{}; {}", last, why)});
  }
}

namespace {

// Until `take` wants no more.
void ask(const std::shared_ptr<Servers>& servers, std::vector<Request> requests, const Until& until,
         const std::function<bool(Exchange::Answer)>& take) {
  Exchange exchange(servers);
  for (Request& request : requests) exchange.add(std::move(request));
  while (!exchange.is_done()) {
    if (until.is_late()) exchange.give_up("no answer in time");
    exchange.step(until);
    while (auto answer = exchange.next_answer()) {
      if (!take(std::move(*answer))) return;
    }
  }
}

}  // namespace

std::vector<Result<std::unique_ptr<Reply>>> ask_each(const std::shared_ptr<Servers>& servers,
                                                     std::vector<Request> requests, const Until& until) {
  std::vector<Result<std::unique_ptr<Reply>>> replies;
  for (std::size_t i = 0; i < requests.size(); ++i) replies.emplace_back(Error{Errc::internal, {}});
  ask(servers, std::move(requests), until, [&](Exchange::Answer answer) {
    replies[answer.number] = std::move(answer.reply);
    return true;
  });
  return replies;
}

Result<std::vector<std::unique_ptr<Reply>>> ask_all(const std::shared_ptr<Servers>& servers,
                                                    std::vector<Request> requests, const Until& until) {
  std::vector<std::unique_ptr<Reply>> replies(requests.size());
  Status status;
  ask(servers, std::move(requests), until, [&](Exchange::Answer answer) {
    if (answer.reply) {
      replies[answer.number] = std::move(answer.reply).value();
    } else {
      status = answer.reply.error();
    }
    return status.ok();
  });
  if (!status) return status.error();
  return replies;
}

}  // namespace rota::page_store
