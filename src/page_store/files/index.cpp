#include "page_store/files/index.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "core/error.h"
#include "core/start_thread.h"

// An index that is missing or spoiled is made anew from the files, while others may have the old one open:
//
//   any connection                              who finds it spoiled, in a thread of its own
//   --------------                              --------------------------------------------
//   lock, shared                                lock, alone: nobody opens or writes an index now
//   is index.sqlite still the file that         is index.sqlite still the spoiled file? else somebody did it before
//   it has open? else it opens that             writes tmp/..., with what the files' headers say
//   BEGIN ... COMMIT                            removes index.sqlite, then its -wal and -shm
//   unlock                                      renames tmp/... to index.sqlite; unlock
//
// Killed anywhere, it leaves the spoiled index, none, or a whole one. Readers take the lock to open alone: one that
// goes on in a file that was removed sees what was, and looks again next time.

namespace rota::page_store::files {
namespace {

constexpr int kTries = 3;
constexpr const char* kAsConnection =
    "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 512";
constexpr const char* kAsMaker = "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -131072";

Error system_error(const std::string& path) {
  return {Errc::io, core::text("page store: {}: {}", path, std::generic_category().message(errno))};
}

Status is_durable(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open() || ::fsync(file.number()) != 0) return system_error(path);
  return {};
}

}  // namespace

void Index::Connection::close() noexcept {
  rows.reset();
  database.reset();
  file = {};
}

Result<std::shared_ptr<Index>> Index::open(std::shared_ptr<const Folder> folder, Deadline deadline) {
  std::shared_ptr<Index> index(new Index(std::move(folder)), core::DeleteOrLeave());
  const auto nothing = [](Rows&) -> Status { return {}; };
  if (Status status = index->unless_being_made([&] { return index->read(deadline, nothing); }); !status) {
    return status.error();
  }
  return index;
}

bool Index::is_being_made() {
  const std::lock_guard lock(maker_mutex_);
  if (is_making_) return true;
  const auto taken = FolderLock::take_in_time(*folder_, FolderLock::Kind::shared, Clock::now());
  return taken.ok() && !taken->has_value();
}

// What was late because of that may have been made by the time that one asks: then it is done once more.
Status Index::unless_being_made(const std::function<Status()>& work) {
  Status status = work();
  for (int tries = 0; tries < kTries && !status; ++tries) {
    if (is_being_made()) return {};
    status = work();
  }
  return status;
}

Index::~Index() {
  is_ending_ = true;
  if (maker_.joinable()) maker_.join();
}

Status Index::read(Deadline deadline, const Work& work) { return run(Access::read, deadline, work); }

Status Index::write(Deadline deadline, const Work& work) { return run(Access::write, deadline, work); }

Status Index::run(Access access, Deadline deadline, const Work& work) {
  if (!is_here()) {
    return Error{Errc::io, core::text("page store: {}: was opened before fork(), in the parent process; a child opens "
                                      "its own",
                                      folder_->path())};
  }
  for (int tries = 1;; ++tries) {
    Tried tried = try_once(access, deadline, work);
    const bool is_worth_another = tried.spoiled || tried.has_made_room;
    if (!is_worth_another || tries == kTries) return tried.status;
    if (!tried.spoiled) continue;
    if (Status status = make_anew(*tried.spoiled, deadline); !status) return status;
  }
}

Index::Tried Index::try_once(Access access, Deadline deadline, const Work& work) {
  Connection& connection = access == Access::read ? reader_ : writer_;
  const std::unique_lock alone(connection.mutex, deadline);
  if (!alone) return {.status = Error{Errc::io, core::text("page store: {}: the deadline passed", folder_->path())}};

  FileId file = file_at(folder_->index_path());
  std::optional<FolderLock> lock;
  if (access == Access::write || !connection.database || file != connection.file) {
    auto taken = FolderLock::take(*folder_, FolderLock::Kind::shared, deadline);
    if (!taken) return {.status = taken.error()};
    lock.emplace(std::move(taken).value());
    file = file_at(folder_->index_path());
  }
  if (!connection.database || file != connection.file) {
    if (Tried tried = open_file(connection, file, deadline); !tried.status) return tried;
  }
  connection.database->set_deadline(deadline);
  Tried tried{.status = transact(connection, access, work)};
  if (connection.database->is_full()) tried.has_made_room = connection.database->make_room();
  if (connection.database->is_spoiled()) {
    connection.close();
    tried.spoiled = file;
  }
  return tried;
}

// Under the folder's lock, until the WAL is open too: SQLite finds it by its name.
Index::Tried Index::open_file(Connection& connection, FileId file, Deadline deadline) const {
  connection.close();
  if (file == FileId{}) return {Error{Errc::io, "page store: the index is missing"}, file};
  // Whoever removes the file by hand takes no lock, and may do so at any time: then there is none, as above.
  const auto left = [&] { return file_at(folder_->index_path()) == file ? std::nullopt : std::optional(FileId{}); };
  auto opened = Database::open(folder_->index_path());
  if (!opened) return {opened.error(), left()};
  Database& database = **opened;
  database.set_deadline(deadline);
  auto rows = std::make_unique<Rows>(database);
  Status status = rows->check_tables();
  if (status.ok()) status = database.run(kAsConnection);
  if (!status) {
    const bool is_spoiled = database.is_spoiled();
    return {std::move(status), is_spoiled ? std::optional(file) : left()};
  }
  connection.database = std::move(opened).value();
  connection.rows = std::move(rows);
  connection.file = file;
  return {};
}

Status Index::transact(Connection& connection, Access access, const Work& work) {
  Database& database = *connection.database;
  if (Status status = database.run(access == Access::write ? "BEGIN IMMEDIATE" : "BEGIN"); !status) return status;
  Status status;
  try {
    status = work(*connection.rows);
  } catch (...) {
    database.roll_back();
    throw;
  }
  if (status.ok() && !database.is_spoiled()) status = database.run("COMMIT");
  database.roll_back();
  return status;
}

Status Index::make_anew(FileId spoiled, Deadline deadline) {
  std::unique_lock lock(maker_mutex_);
  if (!is_making_) {
    if (maker_.joinable()) maker_.join();
    maker_ = core::start_thread([this, spoiled] {
      Status status = core::guarded([&] { return make_anew_now(spoiled); });
      const std::lock_guard done(maker_mutex_);
      making_ = std::move(status);
      is_making_ = false;
      made_.notify_all();
    });
    if (!maker_.joinable()) {
      return Error{Errc::io,
                   core::text("page store: {}: no thread could be started to make the index anew", folder_->path())};
    }
    is_making_ = true;
  }
  if (!made_.wait_until(lock, deadline, [&] { return !is_making_; })) {
    return Error{Errc::io, core::text("page store: {}: the index is being made anew", folder_->path())};
  }
  return making_;
}

Status Index::make_anew_now(FileId spoiled) const {
  std::optional<FolderLock> lock;
  while (!lock) {
    if (is_ending_) return Error{Errc::io, "page store: closed before the index was made anew"};
    auto taken =
        FolderLock::take_in_time(*folder_, FolderLock::Kind::alone, Clock::now() + std::chrono::milliseconds(50));
    if (!taken) return taken.error();
    if (*taken) lock.emplace(std::move(**taken));
  }
  const std::string path = folder_->index_path();
  if (file_at(path) != spoiled) return {};

  const auto made = folder_->new_file();
  if (!made) return made.error();
  Status status = fill(*made);
  for (const char* ending : {"-wal", "-shm"}) ::unlink((*made + ending).c_str());  // empty
  if (status.ok()) status = is_durable(*made);
  if (status.ok()) {
    for (const char* ending : {"", "-wal", "-shm"}) ::unlink((path + ending).c_str());
    if (std::rename(made->c_str(), path.c_str()) != 0) status = system_error(path);
  }
  if (!status) {
    ::unlink(made->c_str());
    return status;
  }
  return is_durable(folder_->path());
}

Status Index::fill(const std::string& path) const {
  const auto opened = Database::open(path);
  if (!opened) return opened.error();
  Database& database = **opened;
  Rows rows(database);
  if (Status status = database.run(kAsMaker); !status) return status;
  if (Status status = database.run("BEGIN"); !status) return status;
  if (Status status = Rows::make_tables(database); !status) return status;
  Status put;
  Status all = folder_->each_object([&](const ObjectName& name) {
    if (is_ending_) put = Error{Errc::io, "page store: closed before the index was made anew"};
    if (!put) return false;
    const ObjectFile object = folder_->open_object(name);
    if (object.kind == ObjectFile::Kind::right) put = rows.put(object.header, object.look.changed_ms);
    return put.ok();
  });
  if (!all) return all;
  if (!put) return put;
  const auto limit = folder_->max_bytes();
  if (!limit) return limit.error();
  if (*limit) {
    if (Status status = rows.set_max_bytes(**limit); !status) return status;
  }
  return database.run("COMMIT; PRAGMA journal_mode = WAL");
}

}  // namespace rota::page_store::files
