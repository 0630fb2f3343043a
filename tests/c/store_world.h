#pragma once

#include <gtest/gtest.h>
#include <rota/c_store.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "c/world.h"

// A world with a store of files, for calls of rota/c_store.h.

namespace c_test {

template <>
inline constexpr bool kIsHandle<rota_page_store> = true;
template <>
inline constexpr bool kIsHandle<rota_prefix_store> = true;
template <>
inline constexpr bool kIsHandle<rota_prefix_match> = true;

// A folder that is gone at the end.
class StoreFolder {
 public:
  StoreFolder() {
    static std::atomic<int> number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("rota-c-store-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    url_ = "file:" + path_.string();
  }
  ~StoreFolder() { lose(); }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  const char* url() const noexcept { return url_.c_str(); }
  void lose() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::filesystem::path path_;
  std::string url_;
};

class StoreWorld : public World {
 public:
  StoreWorld() {
    must(rota_page_store_open(folder.url(), nullptr, &pages));
    options.weights = "test";
    store = create(cache, options);
    for (int32_t i = 0; i < 4096; ++i) tokens.push_back(i * 7 % 1000);
    must(rota_prefix_store_match(store, tokens.data(), tokens.size(), &match));
    strangers.handles.push_back({typeid(pages).name(), pages});
    strangers.handles.push_back({typeid(store).name(), store});
    strangers.handles.push_back({typeid(match).name(), match});
  }
  ~StoreWorld() {
    rota_prefix_match_destroy(match);
    rota_prefix_store_destroy(store);
    rota_page_store_destroy(pages);
  }
  StoreWorld(const StoreWorld&) = delete;
  StoreWorld& operator=(const StoreWorld&) = delete;

  rota_prefix_store* create(rota_kv_cache* of, const rota_prefix_store_options& chosen) const {
    rota_prefix_store* made = nullptr;
    must(rota_prefix_store_create(pages, of, &chosen, &made));
    return made;
  }

  // So many tokens more in the world's sequence.
  void decode(uint64_t count) {
    step(count);
    rota_fence* done = nullptr;
    must(rota_encoder_submit(encoder, &done));
    must(rota_fence_wait(done));
    rota_fence_destroy(done);
    record();
  }

  // Stores the pages that are sealed; returns their tokens.
  uint64_t stored(uint64_t length) {
    must(rota_prefix_store_put(store, sequence, tokens.data(), length));
    must(rota_prefix_store_flush(store, 20'000));
    const rota_prefix_counters found = counters(store);
    EXPECT_EQ(found.dropped_puts, 0U);
    return found.stored * kPage;
  }

  static rota_prefix_counters counters(const rota_prefix_store* of) {
    rota_prefix_counters found = ROTA_PREFIX_COUNTERS_INIT;
    must(rota_prefix_store_counters(of, &found));
    return found;
  }

  StoreFolder folder;
  rota_page_store* pages = nullptr;
  rota_prefix_store* store = nullptr;
  rota_prefix_match* match = nullptr;
  rota_prefix_store_options options = ROTA_PREFIX_STORE_OPTIONS_INIT;
  std::vector<int32_t> tokens;
};

}  // namespace c_test
