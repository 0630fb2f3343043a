#pragma once

#include <array>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "harness/valkey_server.h"
#include "page_store/valkey/command.h"

namespace rota::test {

// Three masters, each with a replica, that speak TLS only and let nobody in but "admin" and "rota".
class ValkeyCluster {
 public:
  static constexpr std::size_t kMasters = 3;
  static constexpr std::size_t kNodes = 2 * kMasters;

  explicit ValkeyCluster(const std::string& program) {
    for (std::size_t i = 0; i < kNodes; ++i) {
      nodes_[i] = std::make_unique<ValkeyServer>(options(program, bus_ports_[i] = free_port()));
    }
    for (std::size_t i = 0; i < kNodes; ++i) {
      auto admin = nodes_[i]->admin();
      admin.say({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      ids_[i] = admin.say({"CLUSTER", "MYID"});
      if (i < kMasters) {
        const std::size_t first = i * page_store::kSlots / kMasters, end = (i + 1) * page_store::kSlots / kMasters;
        admin.say({"CLUSTER", "ADDSLOTSRANGE", std::to_string(first), std::to_string(end - 1)});
      }
    }
    auto first = nodes_[0]->admin();
    for (std::size_t i = 1; i < kNodes; ++i) {
      first.say({"CLUSTER", "MEET", "127.0.0.1", std::to_string(port(i)), std::to_string(bus_ports_[i])});
    }
    require(info_holds("cluster_known_nodes:6"));
    for (std::size_t i = kMasters; i < kNodes; ++i) {
      require(holds_within(std::chrono::seconds(60), [&] {
        return nodes_[i]->admin().say({"CLUSTER", "REPLICATE", ids_[i - kMasters]}) == "OK";
      }));
    }
    require(info_holds("cluster_state:ok") && holds_within(std::chrono::seconds(60), [&] {
              for (std::size_t i = kMasters; i < kNodes; ++i) {
                const std::string info = nodes_[i]->admin().say({"INFO", "replication"});
                if (info.find("master_link_status:up") == std::string::npos) return false;
              }
              return slots_known(nodes_.front()->admin());
            }));
  }

  ValkeyServer& node(std::size_t i) { return *nodes_[i]; }
  std::uint16_t port(std::size_t i) const { return nodes_[i]->port(); }
  const std::string& id(std::size_t i) const { return ids_[i]; }
  const Certificates& certificates() const { return certificates_; }

  std::string url(std::size_t node = 0) const {
    return "valkeys://rota:secret%21@127.0.0.1:" + std::to_string(port(node)) + "?ca=" + certificates_.ca;
  }

  // Which of the nodes has a slot, as that node itself says.
  std::size_t master_of(std::uint16_t slot) const {
    std::istringstream lines(nodes_[0]->admin().say({"CLUSTER", "NODES"}));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("master") == std::string::npos || line.find("fail") != std::string::npos) continue;
      std::istringstream words(line);
      std::string id, word;
      words >> id;
      for (int i = 0; i < 7; ++i) words >> word;
      while (words >> word) {
        if (word.starts_with('[')) continue;
        const std::size_t dash = word.find('-');
        const int first = std::stoi(word), last = dash == std::string::npos ? first : std::stoi(word.substr(dash + 1));
        if (slot < first || slot > last) continue;
        for (std::size_t i = 0; i < kNodes; ++i) {
          if (ids_[i] == id) return i;
        }
      }
    }
    return kNodes;
  }

 private:
  static void require(bool holds) {
    if (!holds) throw std::runtime_error("no cluster came about");
  }

  ValkeyServer::Options options(const std::string& program, std::uint16_t bus_port) const {
    return {.program = program,
            .lines = {"cluster-enabled yes", "cluster-port " + std::to_string(bus_port), "tls-cluster yes",
                      "tls-replication yes", "cluster-node-timeout 15000", "repl-diskless-sync-delay 0",
                      "repl-ping-replica-period 1", "cluster-replica-validity-factor 0", "masteruser admin",
                      "masterauth admins", "maxmemory-policy allkeys-lru", "user default off",
                      "user admin on >admins ~* &* +@all",
                      "user rota on >secret! ~rota:* " + std::string(page_store::kPermissions)},
            .tls = &certificates_,
            .user = "admin",
            .password = "admins"};
  }

  bool info_holds(const std::string& line) const {
    return holds_within(std::chrono::seconds(60), [&] {
      for (const auto& node : nodes_) {
        if (node->admin().say({"CLUSTER", "INFO"}).find(line) == std::string::npos) return false;
      }
      return true;
    });
  }

  // Replicas are in everybody's map.
  bool slots_known(Admin admin) const {
    const std::string slots = admin.say({"CLUSTER", "SLOTS"});
    for (std::size_t i = 0; i < kNodes; ++i) {
      if (slots.find(ids_[i]) == std::string::npos) return false;
    }
    return true;
  }

  TemporaryFolder folder_;
  Certificates certificates_{folder_};
  std::array<std::uint16_t, kNodes> bus_ports_ = {};
  std::array<std::unique_ptr<ValkeyServer>, kNodes> nodes_;
  std::array<std::string, kNodes> ids_;
};

}  // namespace rota::test
