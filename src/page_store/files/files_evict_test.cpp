#include <fcntl.h>

#include <thread>

#include "page_store/files/files_testing.h"
#include "page_store/files/index.h"

namespace rota::page_store::files {
namespace {

using FilesEvict = FilesTest;

constexpr std::size_t kBytes = 1000 - kObjectHeaderBytes;  // 1000 with the header
constexpr Pace kFast{std::chrono::milliseconds(5), std::chrono::milliseconds(0)};

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }  // the index counts milliseconds

TEST_F(FilesEvict, TheLeastRecentlyUsedLeaveFirst) {
  const auto medium = files::open(store, {.max_bytes = 10'000}, kFast).value();
  for (std::uint64_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .bytes = kBytes}).ok());
    pause();
  }
  EXPECT_EQ(medium->stat(soon()).value().bytes, 10'000U);
  const std::array used{key_of(1), key_of(2)};
  const auto before = found(*medium, 2).used;
  medium->use(used);
  for (const Deadline end = soon(std::chrono::seconds(20)); found(*medium, 2).used == before && Clock::now() < end;) {
    pause();
  }
  ASSERT_NE(found(*medium, 2).used, before);

  ASSERT_TRUE(put_page(*medium, {.number = 11, .bytes = kBytes}).ok());  // down to 95 %
  EXPECT_TRUE(is_there(*medium, 1));
  EXPECT_TRUE(is_there(*medium, 2));
  EXPECT_FALSE(is_there(*medium, 3));
  EXPECT_FALSE(is_there(*medium, 4));
  for (std::uint64_t i = 5; i <= 11; ++i) EXPECT_TRUE(is_there(*medium, i)) << i;
  EXPECT_EQ(medium->stat(soon()).value().bytes, 9000U);
  EXPECT_EQ(files(), 9U);
}

TEST_F(FilesEvict, ChainsLeaveFromTheirEnds) {
  const auto medium = files::open(store, {.max_bytes = 10'000}, kFast).value();
  for (std::uint64_t i = 1; i <= 8; ++i) {  // 1 <- 2 <- ... <- 8
    ASSERT_TRUE(put_page(*medium, {.number = i, .parent = i - 1, .index = i - 1, .bytes = kBytes}).ok());
    pause();
  }
  for (std::uint64_t i = 101; i <= 106; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .parent = i == 101 ? 0 : i - 1, .bytes = kBytes}).ok());
    pause();
    bool is_before = true;
    for (std::uint64_t page = 1; page <= 8; ++page) {
      const bool is_now = is_there(*medium, page);
      EXPECT_TRUE(is_before || !is_now) << "a page is there without the one before it: " << page;
      is_before = is_now;
    }
    EXPECT_LE(medium->stat(soon()).value().bytes, 10'000U);
  }
  EXPECT_TRUE(is_there(*medium, 1));
  EXPECT_FALSE(is_there(*medium, 5));
  for (std::uint64_t i = 101; i <= 106; ++i) EXPECT_TRUE(is_there(*medium, i)) << i;
}

TEST_F(FilesEvict, PagesBehindAPageCountWhicheverComesFirst) {
  const auto medium = files::open(store, {.max_bytes = 4000}, kFast).value();
  ASSERT_TRUE(put_page(*medium, {.number = 2, .parent = 1, .bytes = kBytes}).ok());
  pause();
  ASSERT_TRUE(put_page(*medium, {.number = 1, .parent = 0, .bytes = kBytes}).ok());
  pause();
  for (std::uint64_t i = 11; i <= 13; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .bytes = kBytes}).ok());
    pause();
  }
  EXPECT_FALSE(is_there(*medium, 2));
  EXPECT_FALSE(is_there(*medium, 1));
  EXPECT_EQ(medium->stat(soon()).value().pages, 3U);
}

TEST_F(FilesEvict, AChainThatIsTooLongIsNotStoredBeyondTheLimit) {
  const auto medium = files::open(store, {.max_bytes = 5000}, kFast).value();
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .parent = i - 1, .bytes = kBytes}).ok());
  }
  EXPECT_EQ(put_page(*medium, {.number = 6, .parent = 5, .bytes = kBytes}).error().code, Errc::io);
  for (std::uint64_t i = 1; i <= 5; ++i) EXPECT_TRUE(is_there(*medium, i)) << i;
  EXPECT_FALSE(is_there(*medium, 6));
  EXPECT_EQ(files(), 5U);
  EXPECT_EQ(medium->stat(soon()).value().bytes, 5000U);
}

TEST_F(FilesEvict, ALimitHoldsForAllOpenersAndOutlivesTheIndex) {
  {
    const auto first = files::open(store, {.max_bytes = 3000}, kFast).value();
  }
  const auto second = files::open(store, {}, kFast).value();
  EXPECT_EQ(second->stat(soon()).value().max_bytes, 3000U);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(put_page(*second, {.number = i, .bytes = kBytes}).ok());
    pause();
  }
  EXPECT_LE(second->stat(soon()).value().bytes, 3000U);
  fs::remove(store + "/index.sqlite");
  EXPECT_EQ(second->stat(soon()).value().max_bytes, 3000U);
}

TEST_F(FilesEvict, WhoHasAFileOpenReadsOn) {
  const auto medium = files::open(store, {.max_bytes = 3000}, kFast).value();
  ASSERT_TRUE(put_page(*medium, {.number = 1, .bytes = kBytes}).ok());
  const auto fetch = medium->fetch({{{key_of(1), StoredPart::pages}, kBytes}}, std::chrono::seconds(1)).value();
  std::vector<std::byte> payload(kBytes);
  ASSERT_TRUE(fetch->read(0, 0, std::span(payload).first(100)).ok());
  pause();
  for (std::uint64_t i = 2; i <= 6; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .bytes = kBytes}).ok());
    pause();
  }
  ASSERT_FALSE(is_there(*medium, 1));
  ASSERT_TRUE(fetch->read(0, 100, std::span(payload).subspan(100)).ok());
  EXPECT_EQ(payload, payload_of(1, kBytes));
}

// As if the process that evicts them stopped before it removed the files.
TEST_F(FilesEvict, WhatIsPutAgainBeforeItHasLeftStays) {
  const auto medium = files::open(store, {}, kFast).value();
  for (const std::uint64_t i : {1U, 2U}) ASSERT_TRUE(put_page(*medium, {.number = i, .bytes = kBytes}).ok());
  const std::shared_ptr<const Folder> folder = Folder::open(store).value();
  const auto index = Index::open(folder, soon()).value();
  const Status dropped = index->write(soon(), [&](Rows& rows) -> Status {
    for (const std::uint64_t i : {1U, 2U}) rows.drop({key_of(i), StoredPart::pages}).value();
    return {};
  });
  ASSERT_TRUE(dropped.ok());
  EXPECT_FALSE(is_there(*medium, 1));
  EXPECT_EQ(files(), 2U);
  ASSERT_TRUE(put_page(*medium, {.number = 1, .bytes = kBytes}).ok());
  const auto next = files::open(store, {}, kFast).value();
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(next->get({key_of(1), StoredPart::pages}, soon()).value(), payload_of(1, kBytes));
  EXPECT_FALSE(fs::exists(file_of(2)));
}

TEST_F(FilesEvict, CollectMakesRowsAndFilesAgree) {
  const auto medium = files::open(store, {.max_bytes = 20'000}, kFast).value();
  for (std::uint64_t i = 1; i <= 6; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .bytes = kBytes}).ok());
    pause();
  }
  const std::string lost = bytes_of(file_of(1));
  fs::remove(file_of(1));  // a row without a file
  const auto other = open_files((top / "other").string(), {}).value();
  for (const std::uint64_t i : {21U, 22U}) ASSERT_TRUE(put_page(*other, {.number = i, .bytes = kBytes}).ok());
  fs::copy(top / "other" / "pages", store + "/pages", fs::copy_options::recursive);  // files without a row
  std::string damaged = bytes_of(file_of(22));
  damaged[500] = static_cast<char>(damaged[500] ^ 1);
  write(file_of(22), damaged);
  write(store + "/pages/notes.txt", "not ours");
  write(store + "/tmp/left", "by a writer that was killed");
  write(store + "/tmp/young", "by a writer that goes on");
  const timespec long_ago[2] = {{.tv_sec = ::time(nullptr) - 4000, .tv_nsec = 0},
                                {.tv_sec = ::time(nullptr) - 4000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (store + "/tmp/left").c_str(), long_ago, 0), 0);

  const StoreCollected collected = medium->collect(soon()).value();
  EXPECT_EQ(collected.lost_pages, 1U);
  EXPECT_EQ(collected.adopted_pages, 1U);
  EXPECT_EQ(collected.left_overs, 1U);
  EXPECT_EQ(collected.evicted_pages, 0U);
  EXPECT_FALSE(is_there(*medium, 1));
  EXPECT_TRUE(is_there(*medium, 21));
  EXPECT_FALSE(is_there(*medium, 22));
  EXPECT_FALSE(fs::exists(file_of(22)));
  EXPECT_TRUE(fs::exists(store + "/pages/notes.txt"));
  EXPECT_TRUE(fs::exists(store + "/tmp/young"));
  EXPECT_EQ(medium->stat(soon()).value().bytes, 6000U);

  const auto less = files::open(store, {.max_bytes = 4000}, kFast).value();
  const StoreCollected evicted = less->collect(soon()).value();
  EXPECT_EQ(evicted.evicted_pages, 3U);
  EXPECT_EQ(evicted.evicted_bytes, 3000U);
  EXPECT_FALSE(is_there(*less, 2));
  EXPECT_EQ(files(), 4U);  // three objects, and the notes
}

}  // namespace
}  // namespace rota::page_store::files
