#include "page_store/files/collect.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"

namespace rota::page_store::files {
namespace {

constexpr std::uint64_t kReadAtOnceBytes = std::uint64_t{1} << 20, kRowsAtOnce = 1000;

class Collecting {
 public:
  Collecting(const Shelf& shelf, Deadline deadline) : shelf_(&shelf), deadline_(deadline), buffer_(kReadAtOnceBytes) {}

  Result<StoreCollected> run() {
    if (Status status = look_at_files(); !status) return status.error();
    if (Status status = look_at_rows(); !status) return status.error();
    collected_.left_overs = shelf_->folder().remove_left_overs();
    const auto count_again = [](Rows& rows) { return rows.count_again(); };
    if (Status status = shelf_->index().write(deadline_, count_again); !status) return status.error();
    const auto evicted = shelf_->evict({}, deadline_);
    if (!evicted) return evicted.error();
    collected_.evicted_pages = evicted->pages;
    collected_.evicted_bytes = evicted->bytes;
    return collected_;
  }

 private:
  Status look_at_files() {
    Status status;
    const Status all = shelf_->folder().each_object([&](const ObjectName& name) {
      status = look_at_file(name);
      return status.ok();
    });
    return all.ok() ? status : all;
  }

  // Adopts a file without a row, and one whose row tells another size.
  Status look_at_file(const ObjectName& name) {
    StoredPage page;
    Status status = shelf_->index().read(deadline_, [&](Rows& rows) -> Status {
      const auto found = rows.find(name.key);
      if (!found) return found.error();
      page = *found;
      return {};
    });
    if (!status) return status;
    const ObjectFile object = shelf_->folder().open_object(name);
    if (object.kind == ObjectFile::Kind::unreadable) return {};
    const bool is_right = object.kind == ObjectFile::Kind::right;
    if (is_right && page.part_bytes[static_cast<std::size_t>(name.part)] == object.look.bytes) return {};
    if (is_right) {
      const auto sum = payload_sum_of(object);
      if (!sum) return sum.error();
      if (*sum == object.header.payload_sum) return adopt(object);
    }
    return forget(page, name, object.look.id);
  }

  Status adopt(const ObjectFile& object) {
    const auto is_new = shelf_->adopt(object, deadline_);
    if (!is_new) return is_new.error();
    if (*is_new) ++collected_.adopted_pages;
    return {};
  }

  Status forget(const StoredPage& page, const ObjectName& name, FileId file) {
    if (page.has(name.part) && last_lost_ != page.key) {
      ++collected_.lost_pages;
      last_lost_ = page.key;
    }
    return shelf_->forget_wrong(name, file, deadline_);
  }

  Result<std::uint32_t> payload_sum_of(const ObjectFile& object) {
    std::uint32_t sum = 0;
    for (std::uint64_t done_bytes = 0; done_bytes < object.header.payload_bytes;) {
      if (Clock::now() >= deadline_) {
        return Error{Errc::io, core::text("page store: {}: the deadline passed", shelf_->folder().path())};
      }
      const std::uint64_t bytes = std::min(object.header.payload_bytes - done_bytes, kReadAtOnceBytes);
      const std::span<std::byte> some(buffer_.data(), bytes);
      if (Status status = read_at(object.file, kObjectHeaderBytes + done_bytes, some); !status) return status.error();
      sum = core::crc32c(some, sum);
      done_bytes += bytes;
    }
    return sum;
  }

  Status look_at_rows() {
    for (std::uint64_t after = 0;;) {
      std::uint64_t last = after;
      std::vector<StoredPage> pages;
      Status status = shelf_->index().read(deadline_, [&](Rows& rows) -> Status {
        last = after;
        auto some = rows.some(last, kRowsAtOnce);
        if (!some) return some.error();
        pages = std::move(some).value();
        return {};
      });
      if (!status || pages.empty()) return status;
      after = last;
      for (const StoredPage& page : pages) {
        if (Status looked = look_at_row(page); !looked) return looked;
      }
    }
  }

  Status look_at_row(const StoredPage& page) {
    for (const StoredPart part : kStoredParts) {
      const ObjectName name{page.key, part};
      if (!page.has(part)) continue;
      const auto look = shelf_->folder().look_at(name);
      if (!look || look->id != FileId{}) continue;  // it is there, or nobody can tell now
      if (Status status = forget(page, name, {}); !status) return status;
    }
    return {};
  }

  const Shelf* shelf_;
  Deadline deadline_;
  std::vector<std::byte> buffer_;
  std::optional<PageKey> last_lost_;
  StoreCollected collected_;
};

}  // namespace

Result<StoreCollected> collect(const Shelf& shelf, Deadline deadline) { return Collecting(shelf, deadline).run(); }

}  // namespace rota::page_store::files
