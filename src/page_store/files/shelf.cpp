#include "page_store/files/shelf.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

// Files and rows change in an order in which a row never promises what is gone, whoever is killed when:
//
//   put                                         evict, remove
//   ---                                         -------------
//   writes tmp/..., fsync                       BEGIN  the row goes; its objects are in `leaving`        COMMIT
//   renames it into place, fsync                BEGIN  each object that is leaving, if no row has it:
//   BEGIN  is the file still there?                      removes its file; it has left                   COMMIT
//            yes: the row comes
//            no: all again              COMMIT
//
// What if one process evicts a page while another puts it again? Transactions are one after the other:
//   - the row came before the file was to be removed: the row has it, and it stays
//   - the file came, and is removed before its row comes: put does not find it, and writes it again
// Killed in between, put leaves a file without a row, which collect() adopts; eviction leaves objects in `leaving`, for
// whoever comes next.

namespace rota::page_store::files {
namespace {

constexpr int kTriesToPut = 4, kEvictAtOnce = 64;
constexpr std::uint64_t kLeaveAtOnce = 64;

// Down to a little less, so that not every put evicts.
constexpr std::uint64_t goal_of(std::uint64_t max_bytes) { return max_bytes - max_bytes / 20; }

}  // namespace

Status Shelf::put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) const {
  for (int tries = 0; tries < kTriesToPut; ++tries) {
    if (Status status = folder_->write(header, payload, deadline); !status) return status;
    const auto placed = place(header, deadline);
    if (!placed) return placed.error();
    if (*placed == Placed::there) return {};
    if (*placed == Placed::gone) continue;
    // The page is stored: what leaves late leaves with the next put.
    const auto evicted = evict(header.name.key, deadline);
    if (!evicted || evicted->is_enough) return {};
    const auto look = folder_->look_at(header.name);
    if (!look) return look.error();
    if (Status status = forget_wrong(header.name, look->id, deadline); !status) return status;
    return Error{Errc::io, core::text("page store: {}: {} and the pages before it are more than max_bytes",
                                      folder_->path(), text(header.name))};
  }
  return Error{Errc::io, core::text("page store: {}: {} is removed as often as it is written", folder_->path(),
                                    text(header.name))};
}

Result<Shelf::Placed> Shelf::place(const ObjectHeader& header, Deadline deadline) const {
  auto placed = Placed::gone;
  Status status = index_->write(deadline, [&](Rows& rows) -> Status {
    placed = Placed::gone;
    const auto look = folder_->look_at(header.name);
    if (!look) return look.error();
    if (look->bytes != kObjectHeaderBytes + header.payload_bytes) return {};
    if (Status put = rows.put(header, now_ms()); !put) return put;
    const auto totals = rows.totals();
    if (!totals) return totals.error();
    placed = totals->max_bytes && totals->bytes > *totals->max_bytes ? Placed::too_much : Placed::there;
    return {};
  });
  if (status.ok()) return placed;
  // As on a disk that is full. A file whose row nobody wrote would take space that nobody knows of.
  static_cast<void>(index_->write(deadline, [&](Rows& rows) -> Status {
    const auto page = rows.find(header.name.key);
    return page.ok() && !page->has(header.name.part) ? folder_->remove(header.name) : Status();
  }));
  return status.error();
}

Status Shelf::remove(const PageKey& key, Deadline deadline) const {
  Status status = index_->write(deadline, [&](Rows& rows) -> Status {
    for (const StoredPart part : kStoredParts) {
      if (Status dropped = rows.drop({key, part}); !dropped) return dropped;
    }
    return {};
  });
  return status.ok() ? let_leave(deadline) : status;
}

Status Shelf::forget_wrong(const ObjectName& name, FileId file, Deadline deadline) const {
  Status status = index_->write(deadline, [&](Rows& rows) -> Status {
    const auto look = folder_->look_at(name);
    if (!look) return look.error();
    return look->id == file ? rows.drop(name) : Status();
  });
  return status.ok() ? let_leave(deadline) : status;
}

Result<bool> Shelf::adopt(const ObjectFile& object, Deadline deadline) const {
  bool is_new = false;
  const ObjectName& name = object.header.name;
  Status status = index_->write(deadline, [&](Rows& rows) -> Status {
    const auto page = rows.find(name.key);
    if (!page) return page.error();
    is_new = false;
    const auto look = folder_->look_at(name);
    if (!look) return look.error();
    if (look->id != object.look.id) return {};
    is_new = page->bytes() == 0;
    return rows.put(object.header, object.look.changed_ms);
  });
  if (!status) return status.error();
  return is_new;
}

Result<Shelf::Evicted> Shelf::evict(const PageKey& keep, Deadline deadline) const {
  Evicted evicted;
  for (bool is_done = false; !is_done;) {
    const std::uint64_t pages_before = evicted.pages;
    if (Status status = evict_some(keep, deadline, evicted); !status) return status.error();
    if (Status status = let_leave(deadline); !status) return status.error();
    is_done = evicted.pages - pages_before < kEvictAtOnce;
  }
  return evicted;
}

Status Shelf::evict_some(const PageKey& keep, Deadline deadline, Evicted& evicted) const {
  const Evicted before = evicted;
  return index_->write(deadline, [&](Rows& rows) -> Status {
    evicted = before;
    for (int pages = 0; pages < kEvictAtOnce; ++pages) {
      const auto totals = rows.totals();
      if (!totals) return totals.error();
      if (!totals->max_bytes || totals->bytes <= goal_of(*totals->max_bytes)) return {};
      const auto end = rows.oldest_end(keep);
      if (!end) return end.error();
      evicted.is_enough = totals->bytes <= *totals->max_bytes;
      if (!*end) return {};
      const PageKey& key = **end;
      for (const StoredPart part : kStoredParts) {
        if (Status status = rows.drop({key, part}); !status) return status;
      }
      const auto less = rows.totals();
      if (!less) return less.error();
      evicted.is_enough = less->bytes <= *totals->max_bytes;
      ++evicted.pages;
      evicted.bytes += totals->bytes - less->bytes;
    }
    return {};
  });
}

// A file that cannot be removed now goes on leaving: it is not forgotten, and keeps no other from it.
Status Shelf::let_leave(Deadline deadline) const {
  for (bool is_done = false; !is_done;) {
    Status removed;
    Status status = index_->write(deadline, [&](Rows& rows) -> Status {
      const auto names = rows.leaving(kLeaveAtOnce);
      if (!names) return names.error();
      is_done = names->size() < kLeaveAtOnce;
      removed = {};
      for (const ObjectName& name : *names) {
        const auto page = rows.find(name.key);
        if (!page) return page.error();
        if (!page->has(name.part)) {
          if (Status gone = folder_->remove(name); !gone) {
            removed = std::move(gone);
            continue;
          }
        }
        if (Status left = rows.has_left(name); !left) return left;
      }
      return {};
    });
    if (!status) return status;
    if (!removed) return removed;
  }
  return {};
}

}  // namespace rota::page_store::files
