#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/process.h"
#include "page_store/files/folder.h"
#include "page_store/files/rows.h"
#include "page_store/files/sqlite.h"

namespace rota::page_store::files {

// Which pages a folder has, for all processes that use it. What is in it can be wrong: files decide. Thread-safe. A
// child of fork() may not use its parent's: SQLite's locks are the parent's alone.
class Index : public core::OfProcess {
 public:
  // Succeeds too if the index is still being made anew then: until it is there, all other calls are late.
  static Result<std::shared_ptr<Index>> open(std::shared_ptr<const Folder> folder, Deadline deadline);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // An error of `work` counts unless the index is being made anew, by this process or another.
  Status unless_being_made(const std::function<Status()>& work);

  // Begun again from its start if the index had to be made anew. An error undoes what was written.
  using Work = std::function<Status(Rows&)>;

  // As it was at one moment. Waits for no writer.
  Status read(Deadline deadline, const Work& work);

  // Alone among all processes.
  Status write(Deadline deadline, const Work& work);

 private:
  struct Connection {
    std::timed_mutex mutex;
    FileId file = {};
    std::unique_ptr<Database> database;
    std::unique_ptr<Rows> rows;

    void close() noexcept;
  };
  // `spoiled` is the index that is none; with number 0 it is missing.
  struct Tried {
    Status status = {};
    std::optional<FileId> spoiled = {};
    bool has_made_room = false;  // on a disk that was full
  };
  enum class Access : std::uint8_t { read, write };

  explicit Index(std::shared_ptr<const Folder> folder) noexcept : folder_(std::move(folder)) {}

  Status run(Access access, Deadline deadline, const Work& work);
  Tried try_once(Access access, Deadline deadline, const Work& work);
  Tried open_file(Connection& connection, FileId file, Deadline deadline) const;
  static Status transact(Connection& connection, Access access, const Work& work);

  bool is_being_made();
  Status make_anew(FileId spoiled, Deadline deadline);
  Status make_anew_now(FileId spoiled) const;
  Status fill(const std::string& path) const;

  std::shared_ptr<const Folder> folder_;
  Connection reader_, writer_;

  std::mutex maker_mutex_;
  std::condition_variable made_;
  std::thread maker_;
  bool is_making_ = false;
  Status making_ = {};
  std::atomic<bool> is_ending_ = false;
};

}  // namespace rota::page_store::files
