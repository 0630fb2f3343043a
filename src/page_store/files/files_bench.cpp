#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "page_store/files/folder.h"
#include "page_store/files/index.h"
#include "rota/rota.h"
#include "rota/store.h"

// What many pages cost a store of files: to open it, to match a prompt, to make its index anew.
//
//   rota_store_files_bench FOLDER [ROWS] [FILES]     10 million rows without files, 100,000 small files; FOLDER is new
//
// A match looks for 781 pages of 100,000 tokens, in an index that has ROWS others. The files are there for the last
// part.

namespace {

using namespace rota;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTokens = 100'000, kPage = 128, kChain = 64, kBatch = 100'000;
constexpr int kTurns = 21, kWriters = 8;
constexpr auto kLong = std::chrono::minutes(10);

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A line of /proc/self/status, in MB.
double megabytes_of(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1000;
  }
  return 0;
}

PageKey random_key(std::mt19937_64& random) {
  PageKey key;
  for (std::size_t i = 0; i < key.bytes.size(); i += 8) {
    const std::uint64_t bits = random();
    for (std::size_t j = 0; j < 8; ++j) key.bytes[i + j] = static_cast<std::byte>(bits >> 8 * j);
  }
  return key;
}

// Chains of pages that have rows alone.
void add_rows(const std::string& path, std::uint64_t rows) {
  namespace files = page_store::files;
  const auto folder = files::Folder::open(path).value();
  const auto index = files::Index::open(folder, Clock::now() + kLong).value();
  std::mt19937_64 random(1);
  PageKey parent;
  for (std::uint64_t row = 0; row < rows;) {
    const std::uint64_t end = std::min(rows, row + kBatch);
    index
        ->write(Clock::now() + kLong,
                [&](files::Rows& table) -> Status {
                  for (; row < end; ++row) {
                    if (row % kChain == 0) parent = random_key(random);
                    const PageKey key = random_key(random);
                    const page_store::ObjectHeader header{.name = {key, StoredPart::pages},
                                                          .parent = parent,
                                                          .index = row % kChain,
                                                          .payload_bytes = 4'390'912,
                                                          .payload_sum = 0};
                    if (Status status = table.put(header, 1'000'000 + row); !status) return status;
                    parent = key;
                  }
                  return {};
                })
        .value();
  }
}

struct Prompt {
  PrefixModel model{.weights = "bench"};
  std::vector<KvGroup> groups{
      {.layers = {0}, .kv_heads = 1, .head_dim = 32, .k = turbo(4), .v = turbo(4), .page = kPage}};
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kTokens, 17);

  std::vector<StoredPage> pages() const {
    std::vector<StoredPage> pages;
    PageKey parent = root_key(model, groups).value();
    for (std::uint64_t at = 0; at + kPage <= kTokens; at += kPage) {
      const PageKey key = next_key(parent, std::span(tokens).subspan(at, kPage)).value();
      pages.push_back({.key = key, .parent = parent, .index = at / kPage});
      parent = key;
    }
    return pages;
  }
};

void time_matches(const std::string& url, const Prompt& prompt) {
  Device device = Device::open({.device = "cpu", .threads = 1}).value();
  const KvCache cache = KvCache::create(device, {.groups = prompt.groups, .max_tokens = 1024}).value();
  const double before = megabytes_of("VmRSS");
  Clock::time_point begin = Clock::now();
  const PageStore pages = PageStore::open(url).value();
  const double open_seconds = seconds_since(begin);
  const PrefixStore store =
      PrefixStore::create(pages, cache, {.model = prompt.model, .deadline = std::chrono::seconds(10)}).value();
  std::vector<double> times;
  for (int turn = 0; turn < kTurns; ++turn) {
    begin = Clock::now();
    const std::uint64_t found = store.match(prompt.tokens).value().tokens;
    times.push_back(1000 * seconds_since(begin));
    if (found != kTokens / kPage * kPage)
      fmt::print("only {} tokens were found: {}\n", found, store.counters().last_error);
  }
  const double first = times.front();
  std::ranges::sort(times);
  fmt::print(
      "open {:.1f} ms; match of {} tokens: first {:.2f} ms, median {:.2f} ms, longest {:.2f} ms; memory {:+.1f} MB\n",
      1000 * open_seconds, kTokens, first, times[times.size() / 2], times.back(), megabytes_of("VmRSS") - before);
}

void time_rebuild(const std::string& path, const std::string& url, std::uint64_t files) {
  const PageStore store = PageStore::open(url).value();
  std::atomic<std::uint64_t> next = 0;
  Clock::time_point begin = Clock::now();
  std::vector<std::jthread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      std::mt19937_64 random(static_cast<std::uint64_t>(i) + 100);
      const std::vector<std::byte> payload(1000);
      while (next++ < files) {
        const StoredPage page{.key = random_key(random), .parent = random_key(random)};
        store.put(page, StoredPart::pages, payload, Clock::now() + kLong).value();
      }
    });
  }
  writers.clear();
  fmt::print("{} pages of 1 kB put by {} threads in {:.1f} s\n", files, kWriters, seconds_since(begin));
  const std::uint64_t pages = store.stat(Clock::now() + kLong).value().pages;
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path + "/index.sqlite" + end);
  begin = Clock::now();
  const PageStore again = PageStore::open(url, {.deadline = kLong}).value();
  const std::uint64_t found = again.stat(Clock::now() + kLong).value().pages;
  fmt::print("an index of {} of {} pages was made anew in {:.2f} s; longest memory {:.0f} MB\n", found, pages,
             seconds_since(begin), megabytes_of("VmHWM"));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 2) {
      fmt::print("rota_store_files_bench FOLDER [ROWS] [FILES]\n");
      return 2;
    }
    const std::string path = arguments[1], url = "file:" + path;
    const std::uint64_t rows = count > 2 ? std::stoull(arguments[2]) : 10'000'000;
    const std::uint64_t files = count > 3 ? std::stoull(arguments[3]) : 100'000;
    const Prompt prompt;
    {
      const PageStore store = PageStore::open(url).value();
      for (const StoredPage& page : prompt.pages()) {
        store.put(page, StoredPart::pages, std::vector<std::byte>(100), Clock::now() + kLong).value();
      }
    }
    fmt::print("{} rows: ", prompt.pages().size());
    time_matches(url, prompt);
    const auto begin = Clock::now();
    add_rows(path, rows);
    fmt::print("{} rows more, in {:.0f} s, {:.0f} MB: ", rows, seconds_since(begin),
               static_cast<double>(std::filesystem::file_size(path + "/index.sqlite")) / 1e6);
    time_matches(url, prompt);
    time_rebuild(path, url, files);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  return 0;
}
