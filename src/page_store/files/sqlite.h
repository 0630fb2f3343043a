#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "page_store/medium.h"

// As much of SQLite as the index needs. Errors are Errc::io.

namespace rota::page_store::files {

// A connection. One thread at a time.
class Database {
 public:
  // Of a file that is there; an empty one is a database without tables.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Calls from now on give up then, whoever they wait for.
  void set_deadline(Deadline deadline) noexcept {
    deadline_ = deadline;
    is_full_ = false;
  }

  // Statements without values.
  Status run(const std::string& statements);

  // Ends a transaction that goes on.
  void roll_back() noexcept;

  // Whether a call since then found the disk full; and what may help: a WAL that is written into the file, and cut.
  bool is_full() const noexcept { return is_full_; }
  bool make_room() noexcept;

  // Whether the file turned out to be no index: it is to be made anew.
  bool is_spoiled() const noexcept { return is_spoiled_; }
  void spoil() noexcept { is_spoiled_ = true; }

 private:
  friend class Statement;
  Database(sqlite3* handle, std::string path);

  Status set_up();
  Error failed(int code);
  static int wait(void* self, int tries);
  static int is_late(void* self);

  sqlite3* handle_;
  std::string path_;
  Deadline deadline_ = Deadline::max();
  bool is_spoiled_ = false, is_full_ = false;
};

// Prepared when it is first run. The database outlives it.
class Statement {
 public:
  Statement(Database& database, std::string_view sql) noexcept : database_(&database), sql_(sql) {}
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The first row; false: there is none. Bytes must live until the statement has run.
  template <class... Values>
  Result<bool> first(const Values&... values) {
    if (Status status = begin(); !status) return status.error();
    int at = 0;
    (bind(++at, values), ...);
    return next();
  }
  Result<bool> next();

  // What gives no rows.
  template <class... Values>
  Status run(const Values&... values) {
    const auto row = first(values...);
    reset();
    if (!row) return row.error();
    return {};
  }

  // Ends what goes on, and with it the statement's hold of the file.
  void reset() noexcept;

  std::uint64_t number(int column) noexcept;  // of any 64 bits
  std::uint64_t count(int column) noexcept;   // not below 0, or the file is spoiled
  PageKey key(int column) noexcept;           // of 32 bytes, or the file is spoiled
  std::string text(int column);

 private:
  Status begin();
  void bind(int at, std::uint64_t number) noexcept;
  void bind(int at, const PageKey& key) noexcept;

  Database* database_;
  std::string_view sql_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = SQLITE_OK;
};

// Resets a statement whose rows are not read to their end.
class Resetting {
 public:
  explicit Resetting(Statement& statement) noexcept : statement_(&statement) {}
  ~Resetting() { statement_->reset(); }
  Resetting(const Resetting&) = delete;
  Resetting& operator=(const Resetting&) = delete;

 private:
  Statement* statement_;
};

}  // namespace rota::page_store::files
