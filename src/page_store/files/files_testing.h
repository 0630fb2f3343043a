#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "page_store/files/files.h"
#include "page_store/files/sqlite.h"
#include "page_store/medium.h"

// Pages whose contents follow from a number, so that whoever finds one can tell whether it is right.

namespace rota::page_store::files {

namespace fs = std::filesystem;

inline Deadline soon(std::chrono::milliseconds at_most = std::chrono::seconds(10)) { return Clock::now() + at_most; }

inline PageKey key_of(std::uint64_t number) {
  std::mt19937_64 random(number);
  PageKey key;
  for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(random());
  return key;
}

inline std::vector<std::byte> payload_of(std::uint64_t number, std::size_t bytes) {
  std::mt19937_64 random(number ^ 0x5bd1e995);
  std::vector<std::byte> payload(bytes);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  return payload;
}

struct Put {
  std::uint64_t number = 0, parent = 0, index = 0;
  std::size_t bytes = 1000;
  StoredPart part = StoredPart::pages;
};

inline ObjectHeader header_of(const Put& put) {
  const auto payload = payload_of(put.number, put.bytes);
  return {.name = {key_of(put.number), put.part},
          .parent = key_of(put.parent),
          .index = put.index,
          .payload_bytes = payload.size(),
          .payload_sum = payload_sum(payload)};
}

inline Status put_page(Medium& medium, const Put& put, Deadline deadline = soon()) {
  return medium.put(header_of(put), payload_of(put.number, put.bytes), deadline);
}

inline StoredPage found(Medium& medium, std::uint64_t number) {
  const PageKey key = key_of(number);
  return medium.find({&key, 1}, soon()).value().front();
}

inline bool is_there(Medium& medium, std::uint64_t number) { return found(medium, number).bytes() > 0; }

// An empty folder below it, for each test.
class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::path(testing::TempDir()) / "rota_store_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    top = name;
    store = (top / "store").string();
  }
  void TearDown() override { fs::remove_all(top); }

  std::shared_ptr<Medium> open(const PageStoreOptions& options = {.deadline = std::chrono::seconds(20)}) const {
    return open_files(store, options).value();
  }

  std::string file_of(std::uint64_t number, StoredPart part = StoredPart::pages) const {
    const std::string name = text(ObjectName{key_of(number), part});
    return store + "/pages/" + name.substr(0, 2) + "/" + name.substr(2);
  }

  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(store + "/pages"))
      count += entry.is_directory() ? 0U : 1U;
    return count;
  }

  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path top;
  std::string store;
};

}  // namespace rota::page_store::files
