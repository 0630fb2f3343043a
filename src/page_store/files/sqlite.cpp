#include "page_store/files/sqlite.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/error.h"

namespace rota::page_store::files {
namespace {

constexpr int kStepsBetweenLooksAtTheClock = 4000;

// What a file gives that is no database, or not ours. All else is the system's doing, and may pass.
bool is_of_a_spoiled_file(int code) noexcept {
  if (code == SQLITE_IOERR_SHORT_READ) return true;
  switch (code & 0xff) {
    case SQLITE_ERROR:  // such as a table that is missing: our statements are right
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_TOOBIG: return true;
    default: return false;
  }
}

}  // namespace

Database::Database(sqlite3* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

Database::~Database() { sqlite3_close_v2(handle_); }

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW;
  const int code = sqlite3_open_v2(path.c_str(), &handle, kFlags, nullptr);
  if (!handle) return core::out_of_memory();
  std::unique_ptr<Database> database(new Database(handle, path));
  if (code != SQLITE_OK) return database->failed(code);
  if (Status status = database->set_up(); !status) return status.error();
  return database;
}

// None of these reads the file. No WAL is deleted at the end: by its name it may be that of a newer index by then.
Status Database::set_up() {
  sqlite3_busy_handler(handle_, wait, this);
  sqlite3_progress_handler(handle_, kStepsBetweenLooksAtTheClock, is_late, this);
  for (const int option : {SQLITE_DBCONFIG_DEFENSIVE, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE}) {
    if (const int code = sqlite3_db_config(handle_, option, 1, nullptr); code != SQLITE_OK) return failed(code);
  }
  return run(
      "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; "
      "PRAGMA temp_store = MEMORY");
}

Error Database::failed(int code) {
  if ((code & 0xff) == SQLITE_NOMEM) return core::out_of_memory();
  if (is_of_a_spoiled_file(code)) spoil();
  is_full_ = is_full_ || (code & 0xff) == SQLITE_FULL;
  if ((code & 0xff) == SQLITE_INTERRUPT || (code & 0xff) == SQLITE_BUSY) {
    return {Errc::io, core::text("page store: {}: the deadline passed", path_)};
  }
  return {Errc::io, core::text("page store: {}: {}", path_, sqlite3_errstr(code))};
}

Status Database::run(const std::string& statements) {
  if (const int code = sqlite3_exec(handle_, statements.c_str(), nullptr, nullptr, nullptr); code != SQLITE_OK) {
    return failed(code);
  }
  return {};
}

void Database::roll_back() noexcept {
  if (sqlite3_get_autocommit(handle_) != 0) return;
  deadline_ = Deadline::max();
  sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

bool Database::make_room() noexcept {
  return sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) == SQLITE_OK;
}

// Waits for another connection, a little longer each time.
int Database::wait(void* self, int tries) {
  const Deadline deadline = static_cast<Database*>(self)->deadline_;
  const auto now = Clock::now();
  if (now >= deadline) return 0;
  const Clock::duration pause = std::chrono::microseconds(std::min(100 << std::min(tries, 6), 5000));
  std::this_thread::sleep_for(std::min(pause, deadline - now));
  return 1;
}

int Database::is_late(void* self) { return Clock::now() >= static_cast<Database*>(self)->deadline_ ? 1 : 0; }

Statement::~Statement() { sqlite3_finalize(statement_); }

Status Statement::begin() {
  bound_ = SQLITE_OK;
  if (statement_) {
    sqlite3_reset(statement_);
    return {};
  }
  const int code = sqlite3_prepare_v3(database_->handle_, sql_.data(), static_cast<int>(sql_.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement_, nullptr);
  if (code != SQLITE_OK) return database_->failed(code);
  return {};
}

Result<bool> Statement::next() {
  const int code = bound_ == SQLITE_OK ? sqlite3_step(statement_) : bound_;
  if (code == SQLITE_ROW) return true;
  reset();
  if (code == SQLITE_DONE) return false;
  return database_->failed(code);
}

void Statement::reset() noexcept {
  if (statement_) sqlite3_reset(statement_);
}

void Statement::bind(int at, std::uint64_t number) noexcept {
  if (bound_ == SQLITE_OK) bound_ = sqlite3_bind_int64(statement_, at, static_cast<sqlite3_int64>(number));
}

void Statement::bind(int at, const PageKey& key) noexcept {
  if (bound_ != SQLITE_OK) return;
  bound_ = sqlite3_bind_blob(statement_, at, key.bytes.data(), static_cast<int>(key.bytes.size()), SQLITE_STATIC);
}

std::uint64_t Statement::number(int column) noexcept {
  return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
}

std::uint64_t Statement::count(int column) noexcept {
  const sqlite3_int64 found = sqlite3_column_int64(statement_, column);
  if (found >= 0) return static_cast<std::uint64_t>(found);
  database_->spoil();
  return 0;
}

PageKey Statement::key(int column) noexcept {
  PageKey key;
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes && sqlite3_column_bytes(statement_, column) == static_cast<int>(key.bytes.size())) {
    std::memcpy(key.bytes.data(), bytes, key.bytes.size());
  } else {
    database_->spoil();
  }
  return key;
}

std::string Statement::text(int column) {
  const unsigned char* letters = sqlite3_column_text(statement_, column);
  if (!letters) return {};
  return {reinterpret_cast<const char*>(letters), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

}  // namespace rota::page_store::files
