#include "page_store/files/files_fetch.h"

#include <fcntl.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/error.h"

// Several files are on their way from the disk at any time:
//
//   object    0       1       2       3       4       5       6
//             read    being   opened, and the system was       not opened yet
//             and     read    told to read them (kAhead)
//             closed
//
// Bytes go straight to where they are wanted. Files are not mapped: one that somebody truncates would end the process.

namespace rota::page_store::files {
namespace {

constexpr std::size_t kAhead = 8;
constexpr std::uint64_t kAheadBytes = std::uint64_t{32} << 20;

void tell_that_it_will_be_read(const ObjectFile& object) {
#if defined(POSIX_FADV_WILLNEED)
  ::posix_fadvise(object.file.number(), 0, static_cast<off_t>(object.look.bytes), POSIX_FADV_WILLNEED);
#elif defined(F_RDADVISE)
  radvisory all{0, static_cast<int>(std::min<std::uint64_t>(object.look.bytes, 1U << 30))};
  ::fcntl(object.file.number(), F_RDADVISE, &all);
#else
  static_cast<void>(object);
#endif
}

class FilesFetch final : public Fetch {
 public:
  FilesFetch(std::shared_ptr<const Folder> folder, std::vector<Wanted> objects, TellWrong tell_wrong)
      : folder_(std::move(folder)),
        objects_(std::move(objects)),
        tell_wrong_(std::move(tell_wrong)),
        slots_(objects_.size()) {}

  Status read(std::size_t index, std::uint64_t offset, std::span<std::byte> to) override {
    if (index >= objects_.size()) return core::refuse({"Fetch::read", {"index"}}, index, "below {}", objects_.size());
    const std::uint64_t size = objects_[index].payload_bytes;
    if (offset > size || to.size() > size - offset) {
      return core::refuse({"Fetch::read", {"offset"}}, offset, "bytes up to {}", size);
    }
    open_ahead(index);
    const auto opened = open(index);
    if (!opened) return opened.error();
    const std::shared_ptr<const ObjectFile>& object = *opened;
    if (const Status status = read_at(object->file, kObjectHeaderBytes + offset, to); !status) {
      return Error{Errc::io, core::text("stored object: {}: {}", text(objects_[index].name), status.error().message)};
    }
    close_at_the_end(index, to.size());
    return {};
  }

 private:
  using Opened = std::shared_ptr<const ObjectFile>;
  struct Slot {
    std::mutex mutex;
    Opened object;
    Status status;
    std::uint64_t read_bytes = 0;
  };

  // Who comes while another is at it goes on: the other opens what is next.
  void open_ahead(std::size_t index) {
    const std::unique_lock lock(ahead_mutex_, std::try_to_lock);
    if (!lock) return;
    ahead_ = std::max(ahead_, index);
    std::uint64_t bytes = 0;
    for (std::size_t i = index; i < std::min(index + 1 + kAhead, objects_.size()); ++i) {
      bytes += objects_[i].payload_bytes;
      if (i > index && bytes > kAheadBytes) return;
      if (i < ahead_) continue;
      ahead_ = i + 1;
      if (const auto opened = open(i); opened.ok()) tell_that_it_will_be_read(**opened);
    }
  }

  Result<Opened> open(std::size_t index) {
    Slot& slot = slots_[index];
    const std::lock_guard lock(slot.mutex);
    if (!slot.status) return slot.status.error();
    if (slot.object) return slot.object;
    const Wanted& wanted = objects_[index];
    auto object = std::make_shared<ObjectFile>(folder_->open_object(wanted.name));
    slot.status = object->status;
    if (object->status.ok() && object->header.payload_bytes != wanted.payload_bytes) {
      object->kind = ObjectFile::Kind::wrong;
      slot.status = Error{Errc::io, core::text("stored object: {} has {} bytes; wanted {}", text(wanted.name),
                                               object->header.payload_bytes, wanted.payload_bytes)};
    }
    if (object->kind == ObjectFile::Kind::wrong) tell_wrong_(wanted.name, object->look.id);
    if (!slot.status) return slot.status.error();
    slot.object = std::move(object);
    return slot.object;
  }

  void close_at_the_end(std::size_t index, std::uint64_t read_bytes) {
    Slot& slot = slots_[index];
    const std::lock_guard lock(slot.mutex);
    slot.read_bytes += read_bytes;
    if (slot.read_bytes >= objects_[index].payload_bytes) slot.object.reset();
  }

  std::shared_ptr<const Folder> folder_;
  std::vector<Wanted> objects_;
  TellWrong tell_wrong_;
  std::vector<Slot> slots_;

  std::mutex ahead_mutex_;
  std::size_t ahead_ = 0;  // the first that was not opened ahead
};

}  // namespace

std::unique_ptr<Fetch> fetch_files(std::shared_ptr<const Folder> folder, std::vector<Wanted> objects,
                                   TellWrong tell_wrong) {
  return std::make_unique<FilesFetch>(std::move(folder), std::move(objects), std::move(tell_wrong));
}

}  // namespace rota::page_store::files
