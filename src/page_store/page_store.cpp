#include "core/bounded.h"
#include "core/error.h"
#include "page_store/files/open_files.h"
#include "page_store/medium.h"
#include "page_store/url.h"
#if ROTA_STORE_HAS_VALKEY
#include "page_store/valkey/open_valkey.h"
#endif

namespace rota::inline ROTA_ABI {

Result<PageStore> PageStore::open(std::string_view url, const PageStoreOptions& options) {
  return core::guarded([&]() -> Result<PageStore> {
    auto place = page_store::read_url(url);
    if (!place) return place.error();
    const PageStoreOptions chosen{.max_bytes = options.max_bytes, .deadline = core::bounded(options.deadline)};
    if (place->kind == page_store::Url::Kind::files) {
      auto files = page_store::open_files(place->path, chosen);
      if (!files) return files.error();
      return PageStore(std::move(files).value());
    }
#if ROTA_STORE_HAS_VALKEY
    auto servers = page_store::open_valkey(*place, chosen);
    if (!servers) return servers.error();
    return PageStore(std::move(servers).value());
#else
    return Error{Errc::unsupported,
                 "PageStore::open: this build has no Redis and Valkey: there was no hiredis 1.1 or later"};
#endif
  });
}

Result<std::vector<StoredPage>> PageStore::find(std::span<const PageKey> keys, Deadline deadline) const {
  return core::guarded([&] { return medium_->find(keys, deadline); });
}

Result<std::vector<std::byte>> PageStore::get(const PageKey& key, StoredPart part, Deadline deadline) const {
  return core::guarded([&] { return medium_->get({key, part}, deadline); });
}

Status PageStore::put(const StoredPage& page, StoredPart part, std::span<const std::byte> bytes,
                      Deadline deadline) const {
  return core::guarded([&]() -> Status {
    if (bytes.size() > page_store::kMaxPayloadBytes) {
      return core::refuse({"PageStore::put", {"bytes.size()"}}, bytes.size(), "at most {}",
                          page_store::kMaxPayloadBytes);
    }
    return medium_->put({.name = {page.key, part},
                         .parent = page.parent,
                         .index = page.index,
                         .payload_bytes = bytes.size(),
                         .payload_sum = page_store::payload_sum(bytes)},
                        bytes, deadline);
  });
}

Status PageStore::remove(const PageKey& key, Deadline deadline) const {
  return core::guarded([&] { return medium_->remove(key, deadline); });
}

Status PageStore::list(const std::function<Status(const StoredPage&)>& each, Deadline deadline) const {
  return core::guarded([&]() -> Status {
    if (!each) return core::refuse({"PageStore::list", {"each"}}, "empty", "a function that takes pages");
    return medium_->list(each, deadline);
  });
}

Result<StoreStat> PageStore::stat(Deadline deadline) const {
  return core::guarded([&] { return medium_->stat(deadline); });
}

Result<StoreCollected> PageStore::collect(Deadline deadline) const {
  return core::guarded([&] { return medium_->collect(deadline); });
}

}  // namespace rota::inline ROTA_ABI
