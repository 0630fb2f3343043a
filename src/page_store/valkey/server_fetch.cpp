#include "page_store/valkey/server_fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/process.h"
#include "core/start_thread.h"
#include "page_store/valkey/exchange.h"
#include "page_store/valkey/server_key.h"

// One thread asks and receives, in the order of the objects and never more than the window ahead of what was read:
//
//   | read, given back |  here, partly read  |  asked for  |  not asked for yet ...
//                      |<------------- window ------------>|

namespace rota::page_store {
namespace {

constexpr std::uint64_t kWindowBytes = 64U << 20;
constexpr std::chrono::milliseconds kLittleLater{50};
constexpr std::size_t kLeastObjects = 2;         // of the window, whatever their sizes
constexpr std::uint64_t kStepBytes = 64U << 10;  // less than that in all the patience is nothing

class ServerFetch final : public Fetch {
 public:
  ServerFetch(std::shared_ptr<Servers> servers, std::vector<Wanted> objects, std::chrono::milliseconds patience)
      : servers_(std::move(servers)), patience_(patience), slots_(objects.size()) {
    for (std::size_t i = 0; i < objects.size(); ++i) slots_[i].wanted = objects[i];
  }

  ~ServerFetch() override {
    {
      const std::lock_guard lock(mutex_);
      is_ended_ = true;
    }
    changed_.notify_all();
    const char byte = 0;
    if (wake_[1] >= 0) (void)!write(wake_[1], &byte, 1);
    if (!process_.is_here()) thread_.detach();  // it is the parent's
    if (thread_.joinable()) thread_.join();
    for (const int end : wake_) {
      if (end >= 0) close(end);
    }
  }
  ServerFetch(const ServerFetch&) = delete;
  ServerFetch& operator=(const ServerFetch&) = delete;

  Status begin() {
    if (pipe(wake_.data()) != 0) return Error{Errc::io, "Valkey: no pipe could be made to fetch objects"};
    for (const int end : wake_) fcntl(end, F_SETFD, FD_CLOEXEC);
    thread_ = core::start_thread([this] { run(); });
    return thread_.joinable() ? Status() : Error{Errc::io, "Valkey: no thread could be started to fetch objects"};
  }

  Status read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) override;

 private:
  enum class State : std::uint8_t { later, asked, here, failed };
  struct Slot {
    Wanted wanted;
    State state = State::later;
    std::unique_ptr<Reply> reply = {};
    std::uint64_t unasked_bytes = 0, unread_bytes = 0;  // by readers
    Error error = {Errc::io, {}};
  };

  void run() noexcept;
  void receive_all();
  std::size_t ask_for_more(Exchange& exchange);
  void take(Exchange& exchange);
  void fail_rest(const Error& error);
  void leave_window(const Slot& slot);
  bool must_end() const;

  const core::OfProcess process_;
  const std::shared_ptr<Servers> servers_;
  const std::chrono::milliseconds patience_;
  SpareTexts spare_;
  std::array<int, 2> wake_{-1, -1};
  std::thread thread_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;  // to be asked for
  std::uint64_t window_bytes_ = 0;
  std::size_t window_objects_ = 0;
  std::uint64_t changes_ = 0;
  bool is_ended_ = false;
};

Error not_as_wanted(const ObjectName& name, std::uint64_t found_bytes, std::uint64_t wanted_bytes) {
  return {Errc::io, core::text("stored object: {} has {} bytes; wanted {}", text(name), found_bytes, wanted_bytes)};
}

// Before the first byte of an object is given to anybody.
Status check(const Reply& reply, const Wanted& wanted) {
  if (reply.kind == Reply::Kind::nil) return not_there(wanted.name);
  const auto bytes = std::as_bytes(std::span(reply.whole_text()));
  const std::uint64_t wanted_bytes = kObjectHeaderBytes + wanted.payload_bytes;
  if (reply.kind != Reply::Kind::text || bytes.size() != wanted_bytes) {
    return not_as_wanted(wanted.name, bytes.size(), wanted_bytes);
  }
  const auto header = read_object_header(bytes.first<kObjectHeaderBytes>());
  if (!header) return header.error();
  if (Status status = check_object(*header, wanted.name); !status) return status;
  if (header->payload_bytes != wanted.payload_bytes) {
    return not_as_wanted(wanted.name, kObjectHeaderBytes + header->payload_bytes, wanted_bytes);
  }
  return {};
}

Status ServerFetch::read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) {
  std::unique_lock lock(mutex_);
  if (index >= slots_.size()) return Error{Errc::internal, "ServerFetch::read: there is no such object"};
  Slot& slot = slots_[index];
  const auto is_over = [&] { return slot.state == State::here || slot.state == State::failed; };
  while (!is_over()) {
    const std::uint64_t changes = changes_;
    // The thread is first to lose patience, and says with which server.
    if (!changed_.wait_for(lock, patience_ + kLittleLater, [&] { return is_over() || changes_ != changes; })) {
      return Error{Errc::io, core::text("{}: nothing came for {} ms", text(slot.wanted.name), patience_.count())};
    }
  }
  if (slot.state == State::failed) return slot.error;
  if (to.empty() && slot.reply == nullptr) return {};
  const std::uint64_t size = slot.wanted.payload_bytes;
  if (offset > size || to.size() > size - offset || to.size() > slot.unasked_bytes || slot.reply == nullptr) {
    return Error{Errc::internal, "ServerFetch::read: bytes that are none of the object's, or were read"};
  }
  slot.unasked_bytes -= to.size();
  // Nobody frees it: these bytes are not counted as read yet.
  const char* const from = slot.reply->whole_text().data() + kObjectHeaderBytes + offset;
  lock.unlock();
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
  lock.lock();
  slot.unread_bytes -= to.size();
  std::unique_ptr<Reply> given_back;
  if (slot.unread_bytes == 0 && slot.reply != nullptr) {
    given_back = std::move(slot.reply);
    leave_window(slot);
  }
  lock.unlock();
  if (given_back != nullptr) spare_.give(std::move(given_back->long_text), given_back->long_bytes);
  return {};
}

void ServerFetch::leave_window(const Slot& slot) {
  window_bytes_ -= slot.wanted.payload_bytes;
  --window_objects_;
  ++changes_;
  changed_.notify_all();
}

bool ServerFetch::must_end() const {
  const std::lock_guard lock(mutex_);
  return is_ended_;
}

void ServerFetch::fail_rest(const Error& error) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.state == State::here || slot.state == State::failed) continue;
    slot.state = State::failed;
    slot.error = error;
  }
  changed_.notify_all();
}

void ServerFetch::run() noexcept {
  try {
    receive_all();
  } catch (...) {
    fail_rest(core::out_of_memory());
  }
}

// How many are on their way then.
std::size_t ServerFetch::ask_for_more(Exchange& exchange) {
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    return next_ < slots_.size() &&
           (window_objects_ < kLeastObjects || window_bytes_ + slots_[next_].wanted.payload_bytes <= kWindowBytes);
  };
  if (exchange.is_done()) changed_.wait(lock, [&] { return is_ended_ || next_ == slots_.size() || has_room(); });
  std::size_t asked = 0;
  for (; !is_ended_ && has_room(); ++next_, ++asked) {
    Slot& slot = slots_[next_];
    const std::string key = server_key(servers_->settings().prefix, slot.wanted.name);
    Request request = with_key({"GET", key}, key);
    request.most.bytes = kObjectHeaderBytes + slot.wanted.payload_bytes;
    exchange.add(std::move(request));  // its number is the object's
    slot.state = State::asked;
    window_bytes_ += slot.wanted.payload_bytes;
    ++window_objects_;
  }
  return asked;
}

void ServerFetch::take(Exchange& exchange) {
  while (auto answer = exchange.next_answer()) {
    Slot& slot = slots_[answer->number];
    Status status;
    if (!answer->reply) {
      status = answer->reply.error();
    } else {
      status = check(**answer->reply, slot.wanted);
    }
    const std::lock_guard lock(mutex_);
    slot.unasked_bytes = slot.unread_bytes = slot.wanted.payload_bytes;
    if (status) {
      slot.state = State::here;
      slot.reply = std::move(answer->reply).value();
      ++changes_;
      changed_.notify_all();
    } else {
      slot.state = State::failed;
      slot.error = status.error();
      leave_window(slot);
    }
  }
}

void ServerFetch::receive_all() {
  Exchange exchange(servers_, &spare_);
  Deadline progress_at = Clock::now();
  std::uint64_t progress_bytes = 0;
  for (;;) {
    const bool was_done = exchange.is_done();
    const std::size_t asked = ask_for_more(exchange);
    if (was_done && asked == 0) return;  // to the end, or ended
    if (was_done) progress_at = Clock::now();
    const Until until{.deadline = progress_at + patience_, .wake = wake_[0]};
    exchange.step(until);
    if (must_end()) return;
    if (exchange.received_bytes() - progress_bytes >= kStepBytes || exchange.has_answers()) {
      progress_bytes = exchange.received_bytes();
      progress_at = Clock::now();
      const std::lock_guard lock(mutex_);
      ++changes_;
      changed_.notify_all();
    } else if (until.is_late()) {
      exchange.give_up(core::text("nothing came for {} ms", patience_.count()));
    }
    take(exchange);
  }
}

}  // namespace

Result<std::unique_ptr<Fetch>> fetch_from(std::shared_ptr<Servers> servers, std::vector<Wanted> objects,
                                          std::chrono::milliseconds patience) {
  auto fetch = std::make_unique<ServerFetch>(std::move(servers), std::move(objects), patience);
  if (Status status = fetch->begin(); !status) return status.error();
  return std::unique_ptr<Fetch>(std::move(fetch));
}

}  // namespace rota::page_store
