#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "page_store/url.h"
#include "page_store/valkey/command.h"
#include "rota/result.h"
#include "rota/store.h"

struct ssl_ctx_st;
struct ssl_st;

namespace rota::page_store {

// What a URL says of servers.
struct Settings {
  Address first;                                                       // a server, or any node of a cluster
  std::string user = {}, password = {};                                // in no message
  bool has_user = false;                                               // or a password
  std::shared_ptr<ssl_ctx_st> tls = {};                                // null: plain connections
  std::string prefix = "rota:";                                        // of keys
  std::optional<std::uint32_t> ttl = {};                               // seconds
  std::chrono::milliseconds reach_patience = std::chrono::seconds(2);  // to reach a server
};

Result<Settings> settings_of(const Url& url, const PageStoreOptions& options);

// For a connection to this host: its certificate must be good, and the host's. Null when memory is short.
std::unique_ptr<ssl_st, void (*)(ssl_st*)> tls_to(const std::string& host, const Settings& settings);

}  // namespace rota::page_store
