#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "page_store/medium.h"
#include "page_store/object.h"

// The files of a store, whatever its index says of them.
//
//   PATH/rota-store                    says what the folder is, and how much it may hold
//   PATH/pages/ab/cdef....pages        an object: a header and a payload; "abcdef..." are the 64 digits of its key
//   PATH/tmp/                          files that are being written; those of writers that were killed stay for a while
//   PATH/index.sqlite                  and index.sqlite-wal, index.sqlite-shm
//   PATH/lock                          shared while an index is opened or written to, alone while it is made anew
//
// Whoever can write to the folder can put anything there. No link is followed below it, and what is no regular file is
// not waited for.

namespace rota::page_store::files {

// A file's number, closed at the end.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  bool is_open() const noexcept { return number_ >= 0; }
  int number() const noexcept { return number_; }
  void close() noexcept;

 private:
  int number_ = -1;
};

// Which file it is, as long as somebody has it open or it has a name.
struct FileId {
  dev_t device = 0;
  ino_t number = 0;  // 0: there is no file

  friend bool operator==(const FileId&, const FileId&) = default;
};

struct FileLook {
  FileId id = {};
  std::uint64_t bytes = 0;
  std::uint64_t changed_ms = 0;  // since the epoch
};

// An object's file, or why there is none.
struct ObjectFile {
  // wrong: it is missing, or is no such object, and never will be. unreadable: for now, as without descriptors.
  enum class Kind : std::uint8_t { right, wrong, unreadable };
  Kind kind = Kind::unreadable;
  Descriptor file = {};
  FileLook look = {};
  ObjectHeader header = {};
  Status status = {};
};

// Reads and checks what is before the payload. The file's size is then the one that the header tells.
ObjectFile read_object_file(Descriptor file, const ObjectName& name);

// Fills `to` from the file's byte `offset` on.
Status read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> to);

class Folder {
 public:
  // Makes it, if its parent is there. A folder with other things in it is refused.
  static Result<std::shared_ptr<Folder>> open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  std::string index_path() const { return path_ + "/index.sqlite"; }

  // Kept beside the index, which may be lost.
  Result<std::optional<std::uint64_t>> max_bytes() const;
  Status set_max_bytes(std::uint64_t max_bytes) const;

  // Writes an object and gives it its name. It is durable then, and replaces what was there.
  Status write(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) const;

  ObjectFile open_object(const ObjectName& name) const;
  // No file: number 0.
  Result<FileLook> look_at(const ObjectName& name) const;
  // It is no error if there is none.
  Status remove(const ObjectName& name) const;

  // Names of all that might be objects, in order. False from `each`: no more.
  Status each_object(const std::function<bool(const ObjectName&)>& each) const;

  // An empty file that nobody else has, by its path; it stays.
  Result<std::string> new_file() const;

  // Removes what killed writers left more than an hour ago, and counts it.
  std::uint64_t remove_left_overs() const;

 private:
  Folder(std::string path, Descriptor pages, Descriptor unfinished) noexcept
      : path_(std::move(path)), pages_(std::move(pages)), unfinished_(std::move(unfinished)) {}

  enum class Missing : std::uint8_t { stays, is_made };
  Descriptor open_room(const PageKey& key, Missing missing) const;
  Result<std::pair<Descriptor, std::string>> open_new_file() const;
  Status write_and_move(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline,
                        const std::pair<Descriptor, std::string>& to) const;
  Error failed(const std::string& what) const;

  std::string path_;
  Descriptor pages_, unfinished_;
};

// Held by processes, and by threads, until it is destroyed.
class FolderLock {
 public:
  enum class Kind : std::uint8_t { shared, alone };
  static Result<FolderLock> take(const Folder& folder, Kind kind, Deadline deadline);
  // None: others still have it then.
  static Result<std::optional<FolderLock>> take_in_time(const Folder& folder, Kind kind, Deadline deadline);
  ~FolderLock();
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  explicit FolderLock(Descriptor file) noexcept : file_(std::move(file)) {}

  Descriptor file_;
};

// Of whatever is at the path.
FileId file_at(const std::string& path) noexcept;

std::uint64_t now_ms() noexcept;

}  // namespace rota::page_store::files
