#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "page_store/object.h"
#include "page_store/pause.h"
#include "rota/result.h"
#include "rota/store.h"

// What keeps objects by their names: files, or servers.

namespace rota::page_store {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// An object that is wanted. Its size is known: another is an error before memory is taken for it.
struct Wanted {
  ObjectName name;
  std::uint64_t payload_bytes = 0;
};

// What could be found out. Where one of several servers cannot be asked, its pages are as if they were not there, and
// `unasked` says why.
struct FoundPages {
  std::vector<StoredPage> pages;
  std::optional<Error> unasked;

  // For whom a part is as good as nothing.
  Result<std::vector<StoredPage>> all() && {
    if (unasked) return *std::move(unasked);
    return std::move(pages);
  }
};

// Objects on their way, in the order in which they were asked for. Ends what goes on when it is destroyed.
class Fetch {
 public:
  virtual ~Fetch() = default;

  // Fills `to` with the object's payload from `offset` on, and waits for it: as long as others come before it, and then
  // for the fetch's patience. May be called by several threads at once. Each byte is read once, roughly in order:
  // memory of what was read is given back. The object's header is verified before its first byte; its payload is not.
  virtual Status read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) = 0;
};

// Thread-safe. A call returns by its deadline, a little later at most, with Errc::io. Nothing here throws but
// std::bad_alloc.
class Medium {
 public:
  virtual ~Medium() = default;

  // For those who would rather do without than wait again.
  Pause& pause() noexcept { return pause_; }

  virtual Result<std::vector<StoredPage>> find(std::span<const PageKey> keys, Deadline deadline) = 0;

  // An error only if nothing could be found out.
  virtual Result<FoundPages> find_reachable(std::span<const PageKey> keys, Deadline deadline) {
    auto pages = find(keys, deadline);
    if (!pages) return pages.error();
    return FoundPages{std::move(pages).value(), {}};
  }

  virtual Result<std::unique_ptr<Fetch>> fetch(std::vector<Wanted> objects, std::chrono::milliseconds patience) = 0;

  // The payload, verified. An object that is there and wrong is removed.
  virtual Result<std::vector<std::byte>> get(const ObjectName& name, Deadline deadline) = 0;

  // Returns when the object is there for good. An object that is there already may stay.
  virtual Status put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) = 0;

  // Pages that were matched, for whoever decides what leaves. Cheap: what it costs is done later.
  virtual void use(std::span<const PageKey> keys) = 0;

  virtual Status remove(const PageKey& key, Deadline deadline) = 0;
  virtual Status list(const std::function<Status(const StoredPage&)>& each, Deadline deadline) = 0;
  virtual Result<StoreStat> stat(Deadline deadline) = 0;
  virtual Result<StoreCollected> collect(Deadline deadline) = 0;

 private:
  Pause pause_;
};

}  // namespace rota::page_store
