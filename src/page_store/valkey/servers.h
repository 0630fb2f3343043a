#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/process.h"
#include "page_store/valkey/connection.h"
#include "page_store/valkey/settings.h"
#include "page_store/valkey/slot_map.h"
#include "page_store/valkey/waiting.h"

namespace rota::page_store {

// A server, or the nodes of a cluster: connections to them that are free, who has which slot, and whom to leave alone
// for a while. Thread-safe.
//
//   a server that failed    |-- left alone --|one tries|-- left alone, twice as long --|one tries| ...
class Servers {
 public:
  // Reaches the first server and asks it whether it is a cluster's node.
  static Result<std::shared_ptr<Servers>> open(Settings settings, const Until& until);

  const Settings& settings() const noexcept { return settings_; }
  bool is_cluster() const;
  std::vector<Address> masters() const;
  std::optional<Address> master_of(std::uint16_t slot) const;

  // A connection that nobody else uses; a new one where none is free. Fails at once while the server is left alone.
  Result<std::unique_ptr<Connection>> connection_to(const Address& address, const Until& until);
  void give_back(const Address& address, std::unique_ptr<Connection> connection);

  // It is well.
  void answered(const Address& address);

  // Nobody knows: whoever tried gave up before it could answer.
  void undecided(const Address& address);

  // It is left alone for a while, and its free connections are closed.
  void failed(const Address& address, const Error& error);
  void close_free(const Address& address);

  // Asks a node who has which slot, unless that was done just now.
  Status refresh(const Until& until);
  void moved(const Redirection& redirection);

  // How often servers said so.
  struct Redirections {
    std::atomic<std::uint64_t> moved = 0, ask = 0, again = 0;
  };
  Redirections& redirections() noexcept { return redirections_; }

 private:
  explicit Servers(Settings settings) : settings_(std::move(settings)) {}

  struct Node {
    std::vector<std::unique_ptr<Connection>> free = {};
    unsigned failures = 0;
    Deadline retry_at = {};
    std::string last_error = {};
  };

  // None: this node cannot tell.
  Result<std::optional<SlotMap>> ask_for_slots(const Address& address, const Until& until);
  Status ask_anybody_for_slots(const Until& until);
  std::vector<Address> whom_to_ask() const;

  const Settings settings_;
  const core::OfProcess process_;
  mutable std::mutex mutex_;  // of what follows
  std::map<Address, Node> nodes_;
  std::optional<SlotMap> slots_;  // none: one server
  bool is_refreshing_ = false;
  std::condition_variable refresh_ended_;
  Deadline refreshed_at_ = {};

  Redirections redirections_;
};

}  // namespace rota::page_store
