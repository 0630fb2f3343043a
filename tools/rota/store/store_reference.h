#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/tool_run.h"
#include "rota/store.h"

// What tests of `rota store` have in common: stores of files, filled as a program fills them.

namespace rota::test {

inline PageStore::Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

class Stored : public testing::Test {
 protected:
  Stored() {
    std::string name = (std::filesystem::temp_directory_path() / "rota-store-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a test");
    folder_ = name;
  }
  ~Stored() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string url(const std::string& name) const { return "file:" + path(name); }

  static PageKey key_of(std::size_t number) {
    PageKey key;
    for (std::size_t i = 0; i < key.bytes.size(); ++i)
      key.bytes[i] = static_cast<std::byte>((number + 1) >> (i % 4 * 8));
    return key;
  }
  static inline const PageKey kRoot = key_of(100'000);
  static std::vector<std::byte> bytes_of(std::size_t number, StoredPart part) {
    return std::vector<std::byte>(1000 + number, static_cast<std::byte>(16 * number + static_cast<std::size_t>(part)));
  }

  // A chain of pages; the last has all parts.
  static void fill(const std::string& url, std::size_t pages) {
    const PageStore store = PageStore::open(url).value();
    for (std::size_t i = 0; i < pages; ++i) {
      const StoredPage page{.key = key_of(i), .parent = i == 0 ? kRoot : key_of(i - 1), .index = i};
      for (const StoredPart part : kStoredParts) {
        if (part == StoredPart::pages || i + 1 == pages) store.put(page, part, bytes_of(i, part), soon()).value();
      }
    }
  }

  static void expect_filled(const std::string& url, std::size_t pages) {
    const PageStore store = PageStore::open(url).value();
    for (std::size_t i = 0; i < pages; ++i) {
      for (const StoredPart part : kStoredParts) {
        if (part != StoredPart::pages && i + 1 != pages) continue;
        const auto found = store.get(key_of(i), part, soon());
        ASSERT_TRUE(found.ok()) << i << ": " << found.error().message;
        EXPECT_EQ(*found, bytes_of(i, part)) << i;
      }
    }
  }

  std::string file_of(const std::string& name, std::size_t number) const {
    const std::string digits = hex(key_of(number));
    return path(name) + "/pages/" + digits.substr(0, 2) + "/" + digits.substr(2) + ".pages";
  }
  void flip_a_bit(const std::string& name, std::size_t number) const {
    std::fstream file(file_of(name, number), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(500);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(500);
    file.put(byte);
    ASSERT_TRUE(file.good());
  }

  // The one row of a report, once the command ended as it should.
  static nlohmann::json row_of(const std::string& arguments, int exit_code = 0) {
    const ToolOutput output = run_tool("store " + arguments + " -o jsonl");
    EXPECT_EQ(output.exit_code, exit_code) << arguments << "\n" << output.text;
    return nlohmann::json::parse(output.text.substr(0, output.text.find('\n')));
  }

  static void expect_failure(const std::string& arguments, int exit_code, const std::string& what) {
    const ToolOutput output = run_tool("store " + arguments);
    EXPECT_EQ(output.exit_code, exit_code) << arguments << "\n" << output.text;
    EXPECT_TRUE(contains(output, what)) << arguments << "\n" << output.text;
  }

  std::filesystem::path folder_;
};

}  // namespace rota::test
