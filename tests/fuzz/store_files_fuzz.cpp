#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "rota/store.h"

// A folder of pages in which somebody wrote: an object's file, or the index. What is not as it was put is not served.

namespace {

using namespace rota;
namespace fs = std::filesystem;

void require(bool holds) {
  if (!holds) std::abort();
}

PageStore::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(5); }

// Of what must hold, however slow the machine is.
constexpr std::chrono::seconds kPatience(60);

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("rota-fuzz-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string url() const { return "file:" + path_.string(); }

  // The object's only file.
  fs::path object() const {
    for (const auto& entry : fs::recursive_directory_iterator(path_ / "pages")) {
      if (entry.is_regular_file()) return entry.path();
    }
    return {};
  }
  fs::path index() const { return path_ / "index.sqlite"; }

 private:
  fs::path path_;
};

void write(const fs::path& path, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

const StoredPage& page() {
  static const StoredPage only{.key = page_key(std::string(64, '5')).value()};
  return only;
}

std::vector<std::byte> payload() { return std::vector<std::byte>(300, std::byte{7}); }

// Whatever the answers are, they come, and bytes are right.
void use(const Folder& folder) {
  auto store = PageStore::open(folder.url());
  if (!store) return;
  (void)store->find(std::span(&page().key, 1), soon());
  if (const auto found = store->get(page().key, StoredPart::pages, soon()); found) require(*found == payload());
  (void)store->list([](const StoredPage&) { return Status(); }, soon());
  (void)store->stat(soon());
  (void)store->collect(soon());
  if (const auto found = store->get(page().key, StoredPart::pages, soon()); found) require(*found == payload());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Folder folder;
  {
    auto store = PageStore::open(folder.url(), {.deadline = kPatience});
    require(store.ok());
    require(store->put(page(), StoredPart::pages, payload(), std::chrono::steady_clock::now() + kPatience).ok());
  }
  const bool is_index = data[0] % 2 == 0;
  write(is_index ? folder.index() : folder.object(), {data + 1, size - 1});
  use(folder);
  return 0;
}
