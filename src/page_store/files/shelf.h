#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "page_store/files/folder.h"
#include "page_store/files/index.h"

namespace rota::page_store::files {

// The files and the index, changed together: shelf.cpp has the order. Thread-safe.
class Shelf {
 public:
  Shelf(std::shared_ptr<const Folder> folder, std::shared_ptr<Index> index) noexcept
      : folder_(std::move(folder)), index_(std::move(index)) {}

  const Folder& folder() const noexcept { return *folder_; }
  Index& index() const noexcept { return *index_; }

  Status put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) const;
  Status remove(const PageKey& key, Deadline deadline) const;

  // The object was found missing, or wrong in that file. What came there since stays.
  Status forget_wrong(const ObjectName& name, FileId file, Deadline deadline) const;

  // The whole file was found right, and has no row. True: its page had none either.
  Result<bool> adopt(const ObjectFile& object, Deadline deadline) const;

  struct Evicted {
    std::uint64_t pages = 0, bytes = 0;
    bool is_enough = true;  // or nothing is left that may leave
  };
  Result<Evicted> evict(const PageKey& keep, Deadline deadline) const;

  // Removes files of what has no row any more.
  Status let_leave(Deadline deadline) const;

 private:
  enum class Placed : std::uint8_t { there, too_much, gone };
  Result<Placed> place(const ObjectHeader& header, Deadline deadline) const;
  Status evict_some(const PageKey& keep, Deadline deadline, Evicted& evicted) const;

  std::shared_ptr<const Folder> folder_;
  std::shared_ptr<Index> index_;
};

}  // namespace rota::page_store::files
