#include "page_store/files/rows.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace rota::page_store::files {
namespace {

// SQLite keeps the text of each: an index with any other is none of ours.
constexpr std::array<std::string_view, 5> kTables{
    "CREATE TABLE pages(id INTEGER PRIMARY KEY, key BLOB NOT NULL, parent BLOB NOT NULL, idx INTEGER NOT NULL, kids "
    "INTEGER NOT NULL, "
    "used INTEGER NOT NULL, pages_bytes INTEGER NOT NULL, window_bytes INTEGER NOT NULL, "
    "state_bytes INTEGER NOT NULL) STRICT",
    "CREATE UNIQUE INDEX keys ON pages(key)", "CREATE INDEX ends ON pages(used) WHERE kids = 0",
    "CREATE TABLE leaving(key BLOB NOT NULL, part INTEGER NOT NULL, PRIMARY KEY (key, part)) STRICT, WITHOUT ROWID",
    "CREATE TABLE totals(pages INTEGER NOT NULL, bytes INTEGER NOT NULL, max_bytes INTEGER NOT NULL) STRICT"};

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::chrono::system_clock::time_point time_of(std::uint64_t ms) {
  constexpr std::uint64_t kMostMs = std::uint64_t{1} << 43;  // of the clock's 64 bits, in nanoseconds
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(std::min(ms, kMostMs)));
}

std::uint64_t ms_of(std::chrono::system_clock::time_point time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

Error not_ours() { return {Errc::io, "page store: the index is none of a page store's"}; }

}  // namespace

Status Rows::make_tables(Database& database) {
  for (const std::string_view table : kTables) {
    if (Status status = database.run(std::string(table)); !status) return status;
  }
  return database.run(core::text("INSERT INTO totals VALUES (0, 0, {})", kNoLimit));
}

Status Rows::check_tables() {
  const Resetting after(schema_);
  std::size_t tables = 0;
  auto row = schema_.first();
  for (; row.ok() && *row; row = schema_.next()) {
    if (tables >= kTables.size() || schema_.text(0) != kTables[tables]) break;
    ++tables;
  }
  if (!row) return row.error();
  const auto journal = journal_.first();
  const Resetting later(journal_);
  if (!journal) return journal.error();
  if (*row || tables != kTables.size() || journal_.text(0) != "wal") {
    database_->spoil();
    return not_ours();
  }
  if (const auto found = totals(); !found) return found.error();
  return {};
}

Result<Rows::Row> Rows::row_of(const PageKey& key) {
  const Resetting after(find_);
  const auto found = find_.first(key);
  if (!found) return found.error();
  Row row{.is_there = *found, .page = {.key = key}};
  if (!row.is_there) return row;
  row.page.parent = find_.key(0);
  row.page.index = find_.number(1);
  row.kids = find_.count(2);
  row.page.used = time_of(find_.count(3));
  for (std::size_t part = 0; part < kStoredParts.size(); ++part) {
    row.page.part_bytes[part] = find_.count(4 + static_cast<int>(part));
  }
  if (database_->is_spoiled()) return not_ours();
  return row;
}

Result<StoredPage> Rows::find(const PageKey& key) {
  auto row = row_of(key);
  if (!row) return row.error();
  return row->page;
}

Result<std::vector<StoredPage>> Rows::some(std::uint64_t& after, std::uint64_t at_most) {
  const Resetting finally(after_);
  std::vector<StoredPage> pages;
  auto row = after_.first(after, at_most);
  for (; row.ok() && *row; row = after_.next()) {
    after = after_.count(0);
    StoredPage& page = pages.emplace_back(StoredPage{
        .key = after_.key(1), .parent = after_.key(2), .index = after_.number(3), .used = time_of(after_.count(4))});
    for (std::size_t part = 0; part < kStoredParts.size(); ++part) {
      page.part_bytes[part] = after_.count(5 + static_cast<int>(part));
    }
  }
  if (!row) return row.error();
  if (database_->is_spoiled()) return not_ours();
  return pages;
}

Status Rows::add_to_totals(std::uint64_t pages, std::uint64_t bytes) { return add_.run(pages, bytes); }

Status Rows::set_row(const Row& row) {
  const StoredPage& page = row.page;
  return set_.run(page.key, page.parent, page.index, row.kids, ms_of(page.used), page.part_bytes[0], page.part_bytes[1],
                  page.part_bytes[2]);
}

Status Rows::put(const ObjectHeader& header, std::uint64_t used_ms) {
  auto row = row_of(header.name.key);
  if (!row) return row.error();
  StoredPage& page = row->page;
  const bool is_new = page.bytes() == 0;
  if (is_new) {
    page.parent = header.parent;
    page.index = header.index;
  }
  std::uint64_t& bytes = page.part_bytes[static_cast<std::size_t>(header.name.part)];
  const std::uint64_t bytes_before = bytes;
  bytes = kObjectHeaderBytes + header.payload_bytes;
  page.used = std::max(page.used, time_of(used_ms));
  if (Status status = add_to_totals(is_new ? 1 : 0, bytes - bytes_before); !status) return status;
  if (Status status = set_row(*row); !status) return status;
  return is_new ? add_kid_.run(page.parent) : Status{};
}

Status Rows::use(const PageKey& key, std::uint64_t used_ms, std::uint64_t unless_after_ms) {
  return use_.run(used_ms, key, unless_after_ms);
}

Status Rows::drop(const ObjectName& name) {
  const auto part = static_cast<std::size_t>(name.part);
  if (Status status = leave_.run(name.key, std::uint64_t{part}); !status) return status;
  auto row = row_of(name.key);
  if (!row) return row.error();
  StoredPage& page = row->page;
  if (!page.has(name.part)) return {};
  const std::uint64_t bytes = std::exchange(page.part_bytes[part], 0);
  const bool is_gone = page.bytes() == 0;
  if (Status status = add_to_totals(is_gone ? ~std::uint64_t{0} : 0, ~bytes + 1); !status) return status;
  const PageKey parent = page.parent;
  if (is_gone) row->page = {.key = page.key};
  Status status = is_gone && row->kids == 0 ? erase_.run(name.key) : set_row(*row);
  return status.ok() && is_gone ? forget_kid(parent) : status;
}

Status Rows::forget_kid(const PageKey& parent) {
  auto row = row_of(parent);
  if (!row) return row.error();
  if (row->kids == 0) return {};
  --row->kids;
  return row->kids == 0 && row->page.bytes() == 0 ? erase_.run(parent) : set_row(*row);
}

Result<std::optional<PageKey>> Rows::oldest_end(const PageKey& keep) {
  const Resetting after(oldest_);
  const auto row = oldest_.first(keep);
  if (!row) return row.error();
  if (!*row) return std::optional<PageKey>{};
  const PageKey key = oldest_.key(0);
  if (database_->is_spoiled()) return not_ours();
  return std::optional(key);
}

Result<std::vector<ObjectName>> Rows::leaving(std::uint64_t at_most) {
  const Resetting after(leaving_);
  std::vector<ObjectName> names;
  auto row = leaving_.first(at_most);
  for (; row.ok() && *row; row = leaving_.next()) {
    const std::uint64_t part = leaving_.count(1);
    if (part >= kStoredParts.size()) database_->spoil();
    names.push_back({leaving_.key(0), kStoredParts[std::min<std::uint64_t>(part, kStoredParts.size() - 1)]});
  }
  if (!row) return row.error();
  if (database_->is_spoiled()) return not_ours();
  return names;
}

Status Rows::has_left(const ObjectName& name) { return left_.run(name.key, static_cast<std::uint64_t>(name.part)); }

Result<Totals> Rows::totals() {
  const Resetting after(totals_);
  const auto row = totals_.first();
  if (!row) return row.error();
  if (!*row) database_->spoil();
  Totals totals;
  if (*row) {
    totals = {.pages = totals_.count(0), .bytes = totals_.count(1)};
    if (const std::uint64_t limit = totals_.count(2); limit != kNoLimit) totals.max_bytes = limit;
  }
  if (database_->is_spoiled()) return not_ours();
  return totals;
}

Status Rows::set_max_bytes(std::uint64_t max_bytes) { return limit_.run(std::min(max_bytes, kNoLimit)); }

Status Rows::count_again() { return count_.run(); }

}  // namespace rota::page_store::files
