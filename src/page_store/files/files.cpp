#include "page_store/files/files.h"

#include <functional>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/process.h"
#include "page_store/files/collect.h"
#include "page_store/files/files_fetch.h"
#include "page_store/files/folder.h"
#include "page_store/files/index.h"
#include "page_store/files/shelf.h"
#include "page_store/files/uses.h"

namespace rota::page_store::files {
namespace {

constexpr std::uint64_t kListAtOnce = 1000;

class Files final : public Medium, public core::OfProcess {
 public:
  Files(const std::shared_ptr<const Folder>& folder, const std::shared_ptr<Index>& index, const Pace& pace)
      : folder_(folder), index_(index), shelf_(std::make_shared<Shelf>(folder, index)), uses_(index, pace) {}

  Status set_up(const std::optional<std::uint64_t>& max_bytes, Deadline deadline) {
    if (max_bytes) {
      const auto set = [&](Rows& rows) { return rows.set_max_bytes(*max_bytes); };
      if (Status status = index_->write(deadline, set); !status) return status;
    }
    bool is_any_leaving = false;
    Status status = index_->read(deadline, [&](Rows& rows) -> Status {
      const auto names = rows.leaving(1);
      if (!names) return names.error();
      is_any_leaving = !names->empty();
      return {};
    });
    return status.ok() && is_any_leaving ? shelf_->let_leave(deadline) : status;
  }

  Result<std::vector<StoredPage>> find(std::span<const PageKey> keys, Deadline deadline) override {
    std::vector<StoredPage> pages;
    Status status = index_->read(deadline, [&](Rows& rows) -> Status {
      pages.clear();
      pages.reserve(keys.size());
      for (const PageKey& key : keys) {
        auto page = rows.find(key);
        if (!page) return page.error();
        pages.push_back(*page);
      }
      return {};
    });
    if (!status) return status.error();
    return pages;
  }

  Result<std::unique_ptr<Fetch>> fetch(std::vector<Wanted> objects, std::chrono::milliseconds patience) override {
    // However many are wrong, who reads waits for the index once.
    const auto tell_wrong = [shelf = shelf_, deadline = Clock::now() + patience](const ObjectName& name, FileId file) {
      static_cast<void>(shelf->forget_wrong(name, file, deadline));
    };
    return fetch_files(folder_, std::move(objects), tell_wrong);
  }

  Result<std::vector<std::byte>> get(const ObjectName& name, Deadline deadline) override {
    const ObjectFile object = folder_->open_object(name);
    std::vector<std::byte> payload;
    Status status = object.status;
    bool is_wrong = object.kind == ObjectFile::Kind::wrong;
    if (status.ok()) {
      payload.resize(object.header.payload_bytes);
      status = read_at(object.file, kObjectHeaderBytes, payload);
      if (status.ok()) {
        status = check_payload(object.header, payload);
        is_wrong = !status;
      }
    }
    if (status.ok()) return payload;
    if (is_wrong) static_cast<void>(shelf_->forget_wrong(name, object.look.id, deadline));
    return status.error();
  }

  Status put(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) override {
    if (payload.size() != header.payload_bytes) {
      return core::refuse({"PageStore::put", {"bytes.size()"}}, payload.size(), "{}", header.payload_bytes);
    }
    if (header.name.key == header.parent) {
      return core::refuse({"PageStore::put", {"page", {}, "parent"}}, "the page itself", "the page before it");
    }
    const auto pages = find({&header.name.key, 1}, deadline);
    if (!pages) return pages.error();
    const std::uint64_t known_bytes = pages->front().part_bytes[static_cast<std::size_t>(header.name.part)];
    if (known_bytes > 0) {
      const auto look = folder_->look_at(header.name);
      if (!look) return look.error();
      if (look->bytes == known_bytes) {
        use({&header.name.key, 1});
        return {};
      }
    }
    return shelf_->put(header, payload, deadline);
  }

  void use(std::span<const PageKey> keys) override {
    if (is_here()) uses_.add(keys);
  }

  Status remove(const PageKey& key, Deadline deadline) override { return shelf_->remove(key, deadline); }

  Status list(const std::function<Status(const StoredPage&)>& each, Deadline deadline) override {
    for (std::uint64_t after = 0;;) {
      std::uint64_t last = after;
      std::vector<StoredPage> pages;
      Status status = index_->read(deadline, [&](Rows& rows) -> Status {
        last = after;
        auto some = rows.some(last, kListAtOnce);
        if (!some) return some.error();
        pages = std::move(some).value();
        return {};
      });
      if (!status || pages.empty()) return status;
      after = last;
      for (const StoredPage& page : pages) {  // outside of the index: `each` may call the store
        if (page.bytes() == 0) continue;
        if (Status told = each(page); !told) return told;
      }
    }
  }

  Result<StoreStat> stat(Deadline deadline) override {
    Totals totals;
    Status status = index_->read(deadline, [&](Rows& rows) -> Status {
      const auto found = rows.totals();
      if (!found) return found.error();
      totals = *found;
      return {};
    });
    if (!status) return status.error();
    return StoreStat{.pages = totals.pages, .bytes = totals.bytes, .max_bytes = totals.max_bytes, .medium = "files"};
  }

  Result<StoreCollected> collect(Deadline deadline) override {
    if (is_here()) uses_.write();
    return files::collect(*shelf_, deadline);
  }

 private:
  std::shared_ptr<const Folder> folder_;
  std::shared_ptr<Index> index_;
  std::shared_ptr<Shelf> shelf_;
  Uses uses_;
};

}  // namespace

Result<std::shared_ptr<Medium>> open(const std::string& path, const PageStoreOptions& options, const Pace& pace) {
  const Deadline deadline = Clock::now() + options.deadline;
  auto opened = Folder::open(path);
  if (!opened) return opened.error();
  const std::shared_ptr<const Folder> folder = std::move(opened).value();
  folder->remove_left_overs();
  if (options.max_bytes) {  // before the index, which takes it from there when it is made
    if (Status status = folder->set_max_bytes(*options.max_bytes); !status) return status.error();
  }
  const auto index = Index::open(folder, deadline);
  if (!index) return index.error();
  const std::shared_ptr<Files> files(new Files(folder, *index, pace), core::DeleteOrLeave());
  const auto set_up = [&] { return files->set_up(options.max_bytes, deadline); };
  if (Status status = (*index)->unless_being_made(set_up); !status) return status.error();
  return std::shared_ptr<Medium>(files);
}

}  // namespace rota::page_store::files

namespace rota::page_store {

Result<std::shared_ptr<Medium>> open_files(const std::string& path, const PageStoreOptions& options) {
  return files::open(path, options, {});
}

}  // namespace rota::page_store
