#include "page_store/files/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "page_store/files/files_testing.h"

namespace rota::page_store::files {
namespace {

using FilesStore = FilesTest;

TEST_F(FilesStore, GivesBackWhatWasPut) {
  const auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  ASSERT_TRUE(put_page(*medium, {.number = 1, .bytes = 70'000, .part = StoredPart::state}).ok());
  ASSERT_TRUE(put_page(*medium, {.number = 2, .parent = 1, .index = 1, .bytes = 0}).ok());

  const StoredPage page = found(*medium, 1);
  EXPECT_EQ(page.key, key_of(1));
  EXPECT_EQ(page.parent, key_of(0));
  EXPECT_EQ(page.part_bytes, (std::array<std::uint64_t, 3>{1128, 0, 70'128}));
  EXPECT_LT(std::chrono::abs(page.used - std::chrono::system_clock::now()), std::chrono::minutes(1));
  EXPECT_EQ(found(*medium, 2).parent, key_of(1));
  EXPECT_EQ(found(*medium, 2).index, 1U);
  EXPECT_FALSE(is_there(*medium, 0));  // a root, which is no page
  EXPECT_FALSE(is_there(*medium, 3));

  EXPECT_EQ(medium->get({key_of(1), StoredPart::pages}, soon()).value(), payload_of(1, 1000));
  EXPECT_EQ(medium->get({key_of(1), StoredPart::state}, soon()).value(), payload_of(1, 70'000));
  EXPECT_TRUE(medium->get({key_of(2), StoredPart::pages}, soon()).value().empty());
  EXPECT_EQ(medium->get({key_of(1), StoredPart::window}, soon()).error().code, Errc::io);

  const StoreStat stat = medium->stat(soon()).value();
  EXPECT_EQ(stat.pages, 2U);
  EXPECT_EQ(stat.bytes, 1128U + 70'128U + 128U);
  EXPECT_FALSE(stat.max_bytes);
  EXPECT_EQ(stat.medium, "files");
}

TEST_F(FilesStore, FetchesPiecesInAnyOrderFromSeveralThreads) {
  const auto medium = open();
  std::vector<Wanted> wanted;
  constexpr std::size_t kBytes = 300'000, kPiece = 50'000;
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i + 1, .bytes = kBytes}).ok());
    wanted.push_back({{key_of(i + 1), StoredPart::pages}, kBytes});
  }
  const auto fetch = medium->fetch(wanted, std::chrono::seconds(1)).value();
  std::atomic<std::size_t> next = 0, right = 0;
  const auto work = [&] {
    for (std::size_t piece = 0; (piece = next++) < wanted.size() * (kBytes / kPiece);) {
      const std::size_t index = piece / (kBytes / kPiece), offset = piece % (kBytes / kPiece) * kPiece;
      std::vector<std::byte> to(kPiece);
      if (!fetch->read(index, offset, to)) continue;
      const auto payload = payload_of(index + 1, kBytes);
      right += std::equal(to.begin(), to.end(), payload.begin() + static_cast<std::ptrdiff_t>(offset)) ? 1U : 0U;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, wanted.size() * (kBytes / kPiece));
  EXPECT_EQ(std::distance(fs::directory_iterator("/proc/self/fd"), {}) > 40, false);  // files were closed

  std::vector<std::byte> to(2);
  EXPECT_EQ(fetch->read(40, 0, to).error().code, Errc::invalid_argument);
  EXPECT_EQ(fetch->read(0, kBytes - 1, to).error().code, Errc::invalid_argument);
}

TEST_F(FilesStore, IsSharedByTwoOpeners) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(put_page(*first, {.number = 1}).ok());
  ASSERT_TRUE(put_page(*second, {.number = 2}).ok());
  EXPECT_TRUE(is_there(*second, 1));
  EXPECT_TRUE(is_there(*first, 2));
  ASSERT_TRUE(second->remove(key_of(1), soon()).ok());
  EXPECT_FALSE(is_there(*first, 1));
}

TEST_F(FilesStore, IsThereAfterItWasClosed) {
  ASSERT_TRUE(put_page(*open(), {.number = 1}).ok());
  EXPECT_EQ(open()->get({key_of(1), StoredPart::pages}, soon()).value(), payload_of(1, 1000));
  EXPECT_TRUE(is_there(*open(), 1));
}

TEST_F(FilesStore, LeavesAPartThatIsThereAsItIs) {
  const auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  struct stat before{}, after{};
  ASSERT_EQ(::stat(file_of(1).c_str(), &before), 0);
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  ASSERT_EQ(::stat(file_of(1).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(medium->stat(soon()).value().pages, 1U);

  fs::remove(file_of(1));  // by hand: it can be put again
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  EXPECT_TRUE(medium->get({key_of(1), StoredPart::pages}, soon()).ok());
  EXPECT_EQ(medium->stat(soon()).value().bytes, 1128U);
}

TEST_F(FilesStore, RefusesAHeaderThatIsNotThePayloads) {
  const auto medium = open();
  const auto payload = payload_of(1, 999);
  EXPECT_EQ(medium->put(header_of({.number = 1}), payload, soon()).error().code, Errc::invalid_argument);
  EXPECT_EQ(put_page(*medium, {.number = 1, .parent = 1}).error().code, Errc::invalid_argument);
  EXPECT_EQ(files(), 0U);
}

TEST_F(FilesStore, ListsAndRemovesPages) {
  const auto medium = open();
  std::set<PageKey> put, listed;
  for (std::uint64_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(put_page(*medium, {.number = i, .parent = i - 1, .index = i - 1, .bytes = 10}).ok());
    put.insert(key_of(i));
  }
  const auto collect = [&](const StoredPage& page) -> Status {
    listed.insert(page.key);
    return medium->stat(soon()).ok() ? Status{} : Error{Errc::io, "stat within list"};
  };
  ASSERT_TRUE(medium->list(collect, soon()).ok());
  EXPECT_EQ(listed, put);
  int calls = 0;
  const auto stop = [&](const StoredPage&) -> Status { return ++calls < 3 ? Status{} : Error{Errc::busy, "enough"}; };
  EXPECT_EQ(medium->list(stop, soon()).error().code, Errc::busy);
  EXPECT_EQ(calls, 3);

  for (std::uint64_t i = 1; i <= 50; ++i) {  // parents before what is behind them
    ASSERT_TRUE(medium->remove(key_of(i), soon()).ok());
    EXPECT_FALSE(is_there(*medium, i));
  }
  EXPECT_EQ(files(), 0U);
  const StoreStat stat = medium->stat(soon()).value();
  EXPECT_EQ(stat.pages, 0U);
  EXPECT_EQ(stat.bytes, 0U);
}

TEST_F(FilesStore, RefusesAFolderOfOthers) {
  fs::create_directory(store);
  write(store + "/thesis.txt", "of great value");
  const auto refused = open_files(store, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::io);
  EXPECT_NE(refused.error().message.find("is no page store"), std::string::npos) << refused.error().message;
  EXPECT_EQ(std::distance(fs::directory_iterator(store), {}), 1);

  write((top / "file").string(), "x");
  EXPECT_NE(open_files((top / "file").string(), {}).error().message.find("is no folder"), std::string::npos);
  EXPECT_EQ(open_files((top / "a" / "b").string(), {}).error().code, Errc::io);

  fs::create_directory(top / "other");
  write((top / "other" / "rota-store").string(), "rota page store 2\n");
  EXPECT_EQ(open_files((top / "other").string(), {}).error().code, Errc::unsupported);
}

TEST_F(FilesStore, MayBeReachedByALinkAndByARelativePath) {
  {
    ASSERT_TRUE(put_page(*open(), {.number = 1}).ok());
  }
  fs::create_directory_symlink(top, top / "link");
  const auto linked = open_files((top / "link" / "store").string(), {}).value();
  EXPECT_TRUE(is_there(*linked, 1));
  const fs::path before = fs::current_path();
  fs::current_path(top);
  const auto relative = open_files("store", {}).value();
  fs::current_path(before);
  EXPECT_TRUE(put_page(*relative, {.number = 2}).ok());
  EXPECT_TRUE(is_there(*linked, 2));
}

TEST_F(FilesStore, FollowsNoLinkAndWaitsForNoPipe) {
  const auto medium = open();
  for (const std::uint64_t i : {1U, 2U, 3U}) ASSERT_TRUE(put_page(*medium, {.number = i}).ok());
  fs::rename(file_of(1), top / "elsewhere");
  fs::create_symlink(top / "elsewhere", file_of(1));
  fs::remove(file_of(2));
  ASSERT_EQ(mkfifo(file_of(2).c_str(), 0600), 0);
  const fs::path room = fs::path(file_of(3)).parent_path();
  fs::rename(room, top / "room");
  fs::create_symlink(top / "room", room);
  for (const std::uint64_t i : {1U, 2U, 3U}) {
    const auto got = medium->get({key_of(i), StoredPart::pages}, soon());
    ASSERT_FALSE(got.ok()) << i;
    EXPECT_EQ(got.error().code, Errc::io);
    EXPECT_FALSE(is_there(*medium, i));
  }
  EXPECT_TRUE(fs::exists(top / "elsewhere"));
  EXPECT_TRUE(fs::exists(top / "room" / fs::path(file_of(3)).filename()));
}

// Without descriptors nobody can tell whether a file is there, nor remove it.
TEST_F(FilesStore, WhatCannotBeRemovedNowIsNotForgotten) {
  const auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  ASSERT_TRUE(is_there(*medium, 1));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit one_more = before;
  one_more.rlim_cur = static_cast<rlim_t>(next) + 1;  // for the folder's lock
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const Status status = medium->remove(key_of(1), soon());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::io);
  EXPECT_EQ(files(), 1U);
  EXPECT_TRUE(medium->remove(key_of(1), soon()).ok());
  EXPECT_EQ(files(), 0U);
}

TEST_F(FilesStore, TakesAnyDeadline) {
  const PageStore pages = PageStore::open("file:" + store, {.deadline = std::chrono::milliseconds::max()}).value();
  EXPECT_EQ(pages.stat(Clock::time_point::max()).value().pages, 0U);
}

TEST_F(FilesStore, ReturnsByItsDeadlineWhileAnotherHoldsTheIndex) {
  const auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  const auto other = Database::open(store + "/index.sqlite").value();
  ASSERT_TRUE(other->run("BEGIN IMMEDIATE").ok());
  const auto begin = Clock::now();
  const Status late = put_page(*medium, {.number = 2}, soon(std::chrono::milliseconds(100)));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::io);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(is_there(*medium, 1));  // readers do not wait
  ASSERT_TRUE(other->run("ROLLBACK").ok());
  EXPECT_TRUE(put_page(*medium, {.number = 2}).ok());
  EXPECT_TRUE(is_there(*medium, 2));
}

}  // namespace
}  // namespace rota::page_store::files
