#include "page_store/valkey/listing.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "page_store/valkey/exchange.h"
#include "page_store/valkey/server_key.h"

namespace rota::page_store {
namespace {

constexpr ReplyLimit kMostOfScan{.bytes = 16U << 20, .items = 1U << 17};
constexpr std::uint64_t kMostInfoBytes = 1U << 20;

// Calls `each` with every page that it was not called with before.
class Listing {
 public:
  Listing(const std::shared_ptr<Servers>& servers, const std::function<Status(const StoredPage&)>& each,
          Deadline deadline)
      : servers_(servers), each_(each), until_{.deadline = deadline} {}

  Status of(const Address& master) {
    std::string cursor = "0";
    do {
      auto keys = scan(master, cursor);
      if (!keys) return keys.error();
      if (Status status = tell(*keys); !status) return status;
    } while (cursor != "0");
    return {};
  }

 private:
  Result<std::vector<PageKey>> scan(const Address& master, std::string& cursor) {
    const std::string_view prefix = servers_->settings().prefix;
    const std::string pattern = key_pattern(prefix);
    std::vector<Request> requests;
    requests.push_back(
        {.head = command({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"}), .most = kMostOfScan, .at = master});
    const auto replies = ask_all(servers_, std::move(requests), until_);
    if (!replies) return replies.error();
    const auto& parts = replies->front()->list;
    if (parts.size() != 2 || parts[0]->text.empty() || parts[1]->kind != Reply::Kind::list) {
      return Error{Errc::io, core::text("Valkey server {}: the answer to SCAN is none", text(master))};
    }
    cursor = parts[0]->text;
    std::vector<PageKey> keys;
    for (const auto& key : parts[1]->list) {
      const auto name = read_server_key(prefix, key->text);
      if (name && told_.insert(name->key).second) keys.push_back(name->key);
    }
    return keys;
  }

  Status tell(std::span<const PageKey> keys) {
    auto found = find_on(servers_, keys, until_.deadline);
    if (!found) return found.error();
    auto pages = std::move(*found).all();
    if (!pages) return pages.error();
    std::erase_if(*pages, [](const StoredPage& page) { return page.bytes() == 0; });
    if (Status status = read_headers(*pages); !status) return status;
    for (const StoredPage& page : *pages) {
      if (Status status = each_(page); !status) return status;
    }
    return {};
  }

  // Parents and indices; of a page that is gone meanwhile or is none they stay unknown.
  Status read_headers(std::span<StoredPage> pages) {
    std::vector<Request> requests;
    for (const StoredPage& page : pages) {
      const auto part = std::ranges::find_if(kStoredParts, [&](StoredPart one) { return page.has(one); });
      const std::string key = server_key(servers_->settings().prefix, {page.key, *part});
      requests.push_back(with_key({"GETRANGE", key, "0", std::to_string(kObjectHeaderBytes - 1)}, key));
    }
    const auto replies = ask_all(servers_, std::move(requests), until_);
    if (!replies) return replies.error();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto bytes = std::as_bytes(std::span((*replies)[i]->whole_text()));
      if (bytes.size() != kObjectHeaderBytes) continue;
      const auto header = read_object_header(bytes.first<kObjectHeaderBytes>());
      if (!header || header->name.key != pages[i].key) continue;
      pages[i].parent = header->parent;
      pages[i].index = header->index;
    }
    return {};
  }

  const std::shared_ptr<Servers>& servers_;
  const std::function<Status(const StoredPage&)>& each_;
  const Until until_;
  std::set<PageKey> told_;
};

// At least one.
Result<std::vector<Address>> masters_of(const std::shared_ptr<Servers>& servers) {
  std::vector<Address> masters = servers->masters();
  if (masters.empty()) return Error{Errc::io, "Valkey cluster: it has no masters"};
  return masters;
}

// The value of "name:value" in lines of INFO.
std::string field(std::string_view info, std::string_view name) {
  for (std::size_t at = info.find(name); at != std::string_view::npos; at = info.find(name, at + 1)) {
    if (at > 0 && info[at - 1] != '\n') continue;
    std::string_view value = info.substr(at + name.size());
    return std::string(value.substr(0, std::min<std::size_t>(value.find_first_of("\r\n"), 32)));
  }
  return {};
}

// "Valkey 8.0.1", or less where the user may not ask.
std::string server_name(const std::shared_ptr<Servers>& servers, const Address& master, Deadline deadline) {
  std::vector<Request> requests;
  requests.push_back({.head = command({"INFO", "server"}), .most = {.bytes = kMostInfoBytes}, .at = master});
  const auto replies = ask_all(servers, std::move(requests), {.deadline = deadline});
  const std::string info = replies ? std::string(replies->front()->whole_text()) : std::string();
  if (const std::string version = field(info, "valkey_version:"); !version.empty()) return "Valkey " + version;
  const std::string version = field(info, "redis_version:");
  return version.empty() ? "Redis or Valkey" : "Redis " + version;
}

}  // namespace

Result<FoundPages> find_on(const std::shared_ptr<Servers>& servers, std::span<const PageKey> keys, Deadline deadline) {
  std::vector<Request> requests;
  for (const PageKey& key : keys) {
    for (const StoredPart part : kStoredParts) {
      const std::string name = server_key(servers->settings().prefix, {key, part});
      requests.push_back(with_key({"STRLEN", name}, name));
    }
  }
  const auto replies = ask_each(servers, std::move(requests), {.deadline = deadline});
  FoundPages found;
  std::size_t unasked = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    StoredPage page{.key = keys[i]};
    const auto of_page = std::span(replies).subspan(i * kStoredParts.size(), kStoredParts.size());
    const auto failed = std::ranges::find_if(of_page, [](const auto& reply) { return !reply.ok(); });
    if (failed != of_page.end()) {
      found.unasked = failed->error();
      ++unasked;
    }
    for (std::size_t part = 0; part < of_page.size() && failed == of_page.end(); ++part) {
      const Reply& reply = *of_page[part].value();
      if (reply.kind != Reply::Kind::integer || reply.integer < 0) {
        return Error{Errc::io, "Valkey server: the answer to STRLEN is no number of bytes"};
      }
      page.part_bytes[part] = static_cast<std::uint64_t>(reply.integer);
    }
    found.pages.push_back(page);
  }
  if (found.unasked && unasked == keys.size()) return *found.unasked;
  return found;
}

Status list_on(const std::shared_ptr<Servers>& servers, const std::function<Status(const StoredPage&)>& each,
               Deadline deadline) {
  if (servers->is_cluster()) {
    if (Status status = servers->refresh({.deadline = deadline}); !status) return status;
  }
  const auto masters = masters_of(servers);
  if (!masters) return masters.error();
  Listing listing(servers, each, deadline);
  for (const Address& master : *masters) {
    if (Status status = listing.of(master); !status) return status;
  }
  return {};
}

Result<StoreStat> stat_of(const std::shared_ptr<Servers>& servers, Deadline deadline) {
  StoreStat stat;
  Status status = list_on(
      servers,
      [&](const StoredPage& page) {
        ++stat.pages;
        stat.bytes += page.bytes();
        return Status();
      },
      deadline);
  if (!status) return status.error();
  const auto masters = masters_of(servers);  // others than were listed, if the cluster changed
  if (!masters) return masters.error();
  stat.medium = server_name(servers, masters->front(), deadline);
  if (servers->is_cluster()) stat.medium += core::text(", cluster of {}", masters->size());
  return stat;
}

}  // namespace rota::page_store
