#include "page_store/valkey/servers.h"

#include <algorithm>

#include "core/error.h"

namespace rota::page_store {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostFree = 8;      // connections to a server
constexpr std::size_t kMostNodes = 4096;  // that are remembered
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{3200};
constexpr milliseconds kBetweenRefreshes{100};
constexpr milliseconds kRefreshPatience{500};                            // with one node, when there are others to ask
constexpr milliseconds kFairWait{50};                                    // who is silent for less may be alive
constexpr ReplyLimit kMostOfMap{.bytes = 16U << 20, .items = 1U << 19};  // all slots with nodes of their own

Error at(const Address& address, const std::string& what) {
  return {Errc::io, core::text("Valkey server {}: {}", text(address), what)};
}

}  // namespace

Result<std::shared_ptr<Servers>> Servers::open(Settings settings, const Until& until) {
  std::shared_ptr<Servers> servers(new Servers(std::move(settings)));
  auto slots = servers->ask_for_slots(servers->settings_.first, until);
  if (!slots) return slots.error();
  servers->slots_ = std::move(slots).value();
  return servers;
}

bool Servers::is_cluster() const {
  const std::lock_guard lock(mutex_);
  return slots_.has_value();
}

std::vector<Address> Servers::masters() const {
  const std::lock_guard lock(mutex_);
  return slots_ ? slots_->masters() : std::vector{settings_.first};
}

std::optional<Address> Servers::master_of(std::uint16_t slot) const {
  const std::lock_guard lock(mutex_);
  return slots_ ? slots_->master_of(slot) : settings_.first;
}

Result<std::unique_ptr<Connection>> Servers::connection_to(const Address& address, const Until& until) {
  if (!process_.is_here()) return at(address, "this store was opened before fork(); wanted one of this process' own");
  const Deadline begin = Clock::now();
  {
    std::unique_lock lock(mutex_);
    if (!nodes_.contains(address) && nodes_.size() >= kMostNodes) nodes_.clear();
    Node& node = nodes_[address];
    if (begin < node.retry_at) return at(address, core::text("left alone for a while: {}", node.last_error));
    while (!node.free.empty()) {
      auto connection = std::move(node.free.back());
      node.free.pop_back();
      if (connection->is_quiet()) return connection;
    }
    // Others go on without it meanwhile.
    if (node.failures > 0) node.retry_at = begin + settings_.reach_patience;
  }
  auto connection = Connection::open(address, settings_, until.at_most(settings_.reach_patience));
  const bool is_fair = !until.is_late() || Clock::now() - begin >= kFairWait;
  if (connection) return connection;
  if (is_fair && !until.is_woken()) failed(address, connection.error());
  return at(address, connection.error().message);
}

void Servers::give_back(const Address& address, std::unique_ptr<Connection> connection) {
  if (!connection->is_quiet()) return;
  const std::lock_guard lock(mutex_);
  Node& node = nodes_[address];
  if (node.free.size() < kMostFree) node.free.push_back(std::move(connection));
}

void Servers::answered(const Address& address) {
  const std::lock_guard lock(mutex_);
  Node& node = nodes_[address];
  node.failures = 0;
  node.retry_at = {};
}

void Servers::undecided(const Address& address) {
  const std::lock_guard lock(mutex_);
  nodes_[address].retry_at = std::min(nodes_[address].retry_at, Clock::now() + kFirstPause);
}

void Servers::failed(const Address& address, const Error& error) {
  const std::lock_guard lock(mutex_);
  Node& node = nodes_[address];
  const milliseconds pause = kFirstPause * (1U << std::min(node.failures, 5U));
  ++node.failures;
  node.retry_at = Clock::now() + std::min(pause, kLongestPause);
  node.last_error = error.message;
  node.free.clear();
}

void Servers::close_free(const Address& address) {
  const std::lock_guard lock(mutex_);
  nodes_[address].free.clear();
}

Result<std::optional<SlotMap>> Servers::ask_for_slots(const Address& address, const Until& until) {
  auto connection = connection_to(address, until);
  if (!connection) return connection.error();
  const Deadline begin = Clock::now();
  auto reply = (*connection)->call(command({"CLUSTER", "SLOTS"}), kMostOfMap, until);
  if (!reply) {
    const bool is_fair = !until.is_late() || Clock::now() - begin >= kFairWait;
    if (is_fair && !until.is_woken()) failed(address, reply.error());
    return at(address, reply.error().message);
  }
  answered(address);
  give_back(address, std::move(connection).value());
  const Reply& answer = **reply;
  if (answer.kind == Reply::Kind::error) {
    // "ERR This instance has cluster support disabled", or no such command.
    if (answer.text.starts_with("ERR ")) return std::optional<SlotMap>();
    return at(address, core::text("CLUSTER SLOTS was refused: {}", answer.text.substr(0, 200)));
  }
  auto slots = SlotMap::read(answer, address.host);
  if (!slots) return at(address, slots.error().message);
  return std::optional(std::move(slots).value());
}

// Masters that were well, the first server, then the rest.
std::vector<Address> Servers::whom_to_ask() const {
  const std::lock_guard lock(mutex_);
  std::vector<Address> all;
  const auto add = [&](const Address& address) {
    if (std::ranges::find(all, address) == all.end()) all.push_back(address);
  };
  const auto is_well = [&](const Address& address) {
    const auto found = nodes_.find(address);
    return found != nodes_.end() && found->second.failures == 0;
  };
  if (slots_) {
    for (const Address& master : slots_->masters()) {
      if (is_well(master)) add(master);
    }
  }
  add(settings_.first);
  for (const auto& [address, node] : nodes_) add(address);
  return all;
}

Status Servers::refresh(const Until& until) {
  {
    std::unique_lock lock(mutex_);
    if (!refresh_ended_.wait_until(lock, until.deadline, [&] { return !is_refreshing_; })) {
      return Error{Errc::io, "Valkey cluster: nobody told in time who has which slot"};
    }
    if (Clock::now() - refreshed_at_ < kBetweenRefreshes) return {};
    is_refreshing_ = true;
  }
  // Whatever comes of it, memory that is short included.
  const auto end = [this](void*) {
    const std::lock_guard lock(mutex_);
    is_refreshing_ = false;
    refreshed_at_ = Clock::now();
    refresh_ended_.notify_all();
  };
  const std::unique_ptr<void, decltype(end)> ending(this, end);
  return ask_anybody_for_slots(until);
}

Status Servers::ask_anybody_for_slots(const Until& until) {
  Status status = Error{Errc::io, "Valkey cluster: no node can be asked"};
  for (const Address& address : whom_to_ask()) {
    auto slots = ask_for_slots(address, until.at_most(kRefreshPatience));
    if (slots && *slots) {
      const std::lock_guard state(mutex_);
      slots_ = std::move(slots).value();
      return {};
    }
    if (!slots) status = slots.error();
    if (until.is_late() || until.is_woken()) break;
  }
  return status;
}

void Servers::moved(const Redirection& redirection) {
  const std::lock_guard lock(mutex_);
  if (slots_) slots_->move(redirection.slot, redirection.to);
}

}  // namespace rota::page_store
