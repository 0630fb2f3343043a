#include "page_store/valkey/open_valkey.h"

#include "core/error.h"
#include "page_store/valkey/exchange.h"
#include "page_store/valkey/listing.h"
#include "page_store/valkey/server_fetch.h"
#include "page_store/valkey/server_key.h"

namespace rota::page_store {
namespace {

// The most that get() takes: what a server stores under a key at most, unless it was told otherwise.
constexpr std::uint64_t kMostValueBytes = std::uint64_t{512} << 20;

class ValkeyMedium final : public Medium {
 public:
  explicit ValkeyMedium(std::shared_ptr<Servers> servers) : servers_(std::move(servers)) {}

  Result<std::vector<StoredPage>> find(std::span<const PageKey> keys, Deadline deadline) override {
    auto found = find_on(servers_, keys, deadline);
    if (!found) return found.error();
    return std::move(*found).all();
  }

  Result<FoundPages> find_reachable(std::span<const PageKey> keys, Deadline deadline) override {
    return find_on(servers_, keys, deadline);
  }

  Result<std::unique_ptr<Fetch>> fetch(std::vector<Wanted> objects, std::chrono::milliseconds patience) override {
    return fetch_from(servers_, std::move(objects), patience);
  }

  Result<std::vector<std::byte>> get(const ObjectName& name, Deadline deadline) override {
    const std::string key = key_of(name);
    Request request = with_key({"GET", key}, key);
    request.most.bytes = kMostValueBytes;
    auto reply = ask(std::move(request), deadline);
    if (!reply) return reply.error();
    if ((*reply)->kind == Reply::Kind::nil) return not_there(name);
    auto payload = payload_of(**reply, name);
    // Another version's is not ours to remove. If it cannot be removed now, whoever reads it next tries again.
    if (!payload && payload.error().code == Errc::io) (void)ask(with_key({"UNLINK", key}, key), deadline);
    return payload;
  }

  static Result<std::vector<std::byte>> payload_of(const Reply& reply, const ObjectName& name) {
    const auto bytes = std::as_bytes(std::span(reply.whole_text()));
    if (reply.kind != Reply::Kind::text || bytes.size() < kObjectHeaderBytes) {
      return Error{Errc::io, core::text("stored object: {} is none", text(name))};
    }
    const auto header = read_object_header(bytes.first<kObjectHeaderBytes>());
    if (!header) return header.error();
    if (Status status = check_object(*header, name); !status) return status.error();
    const auto payload = bytes.subspan(kObjectHeaderBytes);
    if (Status status = check_payload(*header, payload); !status) return status.error();
    return std::vector(payload.begin(), payload.end());
  }

  Status put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) override {
    const auto first = write_object_header(header);
    const std::string key = key_of(header.name);
    const auto reply =
        ask(set_command({.key = key, .first = first, .rest = payload, .ttl = servers_->settings().ttl}), deadline);
    if (!reply) return reply.error();
    if ((*reply)->kind == Reply::Kind::status && (*reply)->text == "OK") return {};
    return Error{Errc::io, "Valkey server: the answer to SET is not OK"};
  }

  // Servers note what STRLEN and GET ask for.
  void use(std::span<const PageKey>) override {}

  Status remove(const PageKey& key, Deadline deadline) override {
    std::vector<Request> requests;
    for (const StoredPart part : kStoredParts) {
      const std::string name = key_of({key, part});
      requests.push_back(with_key({"UNLINK", name}, name));
    }
    const auto replies = ask_all(servers_, std::move(requests), {.deadline = deadline});
    return replies ? Status() : replies.error();
  }

  Status list(const std::function<Status(const StoredPage&)>& each, Deadline deadline) override {
    return list_on(servers_, each, deadline);
  }

  Result<StoreStat> stat(Deadline deadline) override { return stat_of(servers_, deadline); }

  Result<StoreCollected> collect(Deadline) override {
    return Error{Errc::unsupported,
                 "PageStore::collect: Redis and Valkey servers evict what is least recently used themselves, with "
                 "maxmemory and maxmemory-policy allkeys-lru"};
  }

 private:
  std::string key_of(const ObjectName& name) const { return server_key(servers_->settings().prefix, name); }

  Result<std::unique_ptr<Reply>> ask(Request request, Deadline deadline) {
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    auto replies = ask_all(servers_, std::move(requests), {.deadline = deadline});
    if (!replies) return replies.error();
    return std::move(replies->front());
  }

  const std::shared_ptr<Servers> servers_;
};

}  // namespace

Result<std::shared_ptr<Medium>> open_valkey(const Url& url, const PageStoreOptions& options) {
  auto settings = settings_of(url, options);
  if (!settings) return settings.error();
  auto servers = Servers::open(std::move(settings).value(), {.deadline = Clock::now() + options.deadline});
  if (!servers) return servers.error();
  return std::shared_ptr<Medium>(std::make_shared<ValkeyMedium>(std::move(servers).value()));
}

}  // namespace rota::page_store
