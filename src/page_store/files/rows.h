#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "page_store/files/sqlite.h"
#include "page_store/medium.h"
#include "page_store/object.h"

// The index's tables.
//
//   pages      one row a page, in the order in which they came, so that a chain's rows are mostly together: its parent,
//              its place, how many pages in the index are behind it, when it was used last, and the bytes of each part.
//              A page that is missing has a row too as long as pages are behind it, without parts: so those can be
//              counted whatever comes first.
//   leaving    objects that are not in `pages` any more, and whose files are still there
//   totals     of the pages that have parts; and the limit

namespace rota::page_store::files {

struct Totals {
  std::uint64_t pages = 0, bytes = 0;
  std::optional<std::uint64_t> max_bytes = {};
};

// What can be done to the tables, within a transaction. The database outlives it.
class Rows {
 public:
  explicit Rows(Database& database) noexcept : database_(&database) {}

  static Status make_tables(Database& database);
  Status check_tables();

  // A page that is not there has no parts.
  Result<StoredPage> find(const PageKey& key);
  // Rows behind the one of that number, which becomes the last one's; 0: from the first on. Some have no parts.
  Result<std::vector<StoredPage>> some(std::uint64_t& after, std::uint64_t at_most);

  // The object is there, and has so many bytes.
  Status put(const ObjectHeader& header, std::uint64_t used_ms);
  Status use(const PageKey& key, std::uint64_t used_ms, std::uint64_t unless_after_ms);

  // The object is not there any more; what is left of its file is leaving.
  Status drop(const ObjectName& name);

  // Of the pages with nothing behind them the one that was used least recently, but for `keep`.
  Result<std::optional<PageKey>> oldest_end(const PageKey& keep);

  Result<std::vector<ObjectName>> leaving(std::uint64_t at_most);
  Status has_left(const ObjectName& name);

  Result<Totals> totals();
  Status set_max_bytes(std::uint64_t max_bytes);
  Status count_again();

 private:
  struct Row {
    bool is_there = false;
    std::uint64_t kids = 0;
    StoredPage page = {};
  };
  Result<Row> row_of(const PageKey& key);
  Status add_to_totals(std::uint64_t pages, std::uint64_t bytes);
  Status forget_kid(const PageKey& parent);
  Status set_row(const Row& row);

  Database* database_;

  Statement find_{*database_,
                  "SELECT parent, idx, kids, used, pages_bytes, window_bytes, state_bytes FROM pages WHERE key = ?"};
  Statement after_{*database_,
                   "SELECT id, key, parent, idx, used, pages_bytes, window_bytes, state_bytes FROM pages "
                   "WHERE id > ? ORDER BY id LIMIT ?"};
  Statement set_{*database_,
                 "INSERT INTO pages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                 "parent = excluded.parent, idx = excluded.idx, kids = excluded.kids, used = excluded.used, "
                 "pages_bytes = excluded.pages_bytes, window_bytes = excluded.window_bytes, "
                 "state_bytes = excluded.state_bytes"};
  Statement erase_{*database_, "DELETE FROM pages WHERE key = ?"};
  Statement add_kid_{*database_,
                     "INSERT INTO pages VALUES (NULL, ?, zeroblob(32), 0, 1, 0, 0, 0, 0) "
                     "ON CONFLICT (key) DO UPDATE SET kids = kids + 1"};
  Statement use_{*database_, "UPDATE pages SET used = ? WHERE key = ? AND used <= ?"};
  Statement oldest_{*database_,
                    "SELECT key FROM pages INDEXED BY ends WHERE kids = 0 AND key <> ? ORDER BY used LIMIT 1"};
  Statement leave_{*database_, "INSERT OR IGNORE INTO leaving VALUES (?, ?)"};
  Statement leaving_{*database_, "SELECT key, part FROM leaving LIMIT ?"};
  Statement left_{*database_, "DELETE FROM leaving WHERE key = ? AND part = ?"};
  Statement add_{*database_, "UPDATE totals SET pages = pages + ?, bytes = bytes + ?"};
  Statement totals_{*database_, "SELECT pages, bytes, max_bytes FROM totals"};
  Statement limit_{*database_, "UPDATE totals SET max_bytes = ?"};
  Statement count_{*database_,
                   "UPDATE totals SET (pages, bytes) = (SELECT count(*), "
                   "coalesce(sum(pages_bytes + window_bytes + state_bytes), 0) "
                   "FROM pages WHERE pages_bytes + window_bytes + state_bytes > 0)"};
  Statement journal_{*database_, "PRAGMA journal_mode"};
  Statement schema_{*database_, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"};
};

}  // namespace rota::page_store::files
