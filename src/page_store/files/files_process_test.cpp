#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "page_store/files/files_testing.h"
#include "page_store/files/index.h"

namespace rota::page_store::files {
namespace {

// Processes that use one folder, some of which are killed. A child opens the store itself: SQLite's connections are
// their process's own.
class FilesProcesses : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    open();
  }

  static pid_t start(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        work();
      } catch (...) {
        _exit(4);
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    return child;
  }

  static int end_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  static std::size_t bytes_of_page(std::uint64_t number) { return 4096 + number * 7919 % 61'000; }

  // Puts pages of short chains, one after the other, and writes each number to the pipe once it is stored. After the
  // last of them it waits to be killed.
  void put_and_tell(std::uint64_t first, int pipe, const PageStoreOptions& options) const {
    const auto medium = open(options);
    for (std::uint64_t i = first;; ++i) {
      if (!put_page(*medium, {.number = i, .parent = i % 4 == 0 ? 0 : i - 1, .bytes = bytes_of_page(i)})) _exit(1);
      if (::write(pipe, &i, sizeof i) != sizeof i) _exit(2);
      while (i - first + 1 == kMostPages) ::pause();
    }
  }

  // Two writers, both killed a moment after the first of them has stored 0 to 7 pages: however fast the machine is,
  // some are killed as they open the store, and some with pages that must be there. The numbers of what they stored.
  std::set<std::uint64_t> write_and_kill(std::uint64_t first, std::mt19937& random,
                                         const PageStoreOptions& options) const {
    std::array<std::array<int, 2>, 2> pipes{};
    std::array<pid_t, 2> children{};
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(pipe(pipes[i].data()), 0);
      children[i] = start([&] { put_and_tell(first + i * kApart, pipes[i][1], options); });
      close(pipes[i][1]);
    }
    std::set<std::uint64_t> stored;
    const auto is_told = [&](const std::array<int, 2>& pipe) {
      std::uint64_t number = 0;
      return read(pipe[0], &number, sizeof number) == sizeof number && stored.insert(number).second;
    };
    for (auto pages = random() % 8; pages > 0 && is_told(pipes[0]); --pages) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    for (const pid_t child : children) kill(child, SIGKILL);
    for (std::size_t i = 0; i < 2; ++i) {
      const int status = end_of(children[i]);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a writer ended by itself: " << WEXITSTATUS(status);
      while (is_told(pipes[i])) {
      }
      close(pipes[i][0]);
    }
    return stored;
  }

  // Every page that the index has is whole; how many there are.
  static std::uint64_t check_all(Medium& medium, const std::map<PageKey, std::uint64_t>& numbers) {
    std::uint64_t pages = 0;
    const Status status = medium.list(
        [&](const StoredPage& page) -> Status {
          ++pages;
          const auto number = numbers.find(page.key);
          if (number == numbers.end()) return Error{Errc::io, "a page that nobody put"};
          const auto got = medium.get({page.key, StoredPart::pages}, soon());
          if (!got) return got.error();
          if (*got != payload_of(number->second, bytes_of_page(number->second))) return Error{Errc::io, "wrong bytes"};
          return {};
        },
        soon());
    EXPECT_TRUE(status.ok()) << status.error().message;
    return pages;
  }

  static constexpr std::uint64_t kApart = 1000, kRound = 2 * kApart;
  static constexpr std::uint64_t kMostPages = 199;  // of a writer
  static constexpr std::chrono::seconds kPatience{20};
};

TEST_F(FilesProcesses, WhatWasStoredOutlivesAWriterThatIsKilled) {
  std::mt19937 random(1);
  std::size_t all = 0;
  for (std::uint64_t round = 0; round < 200; ++round) {
    const std::uint64_t first = 1 + round * kRound;
    const auto stored = write_and_kill(first, random, {.deadline = kPatience});
    all += stored.size();
    const auto medium = open();
    std::uint64_t found_pages = 0;
    for (const std::uint64_t base : {first, first + kApart}) {
      const std::uint64_t end =
          base + static_cast<std::uint64_t>(std::distance(stored.lower_bound(base), stored.lower_bound(base + kApart)));
      for (std::uint64_t i = base; i < end + 3; ++i) {  // one more may be there, whose writer could not tell
        const bool must_be = stored.contains(i);
        const bool is = is_there(*medium, i);
        ASSERT_TRUE(is || !must_be) << "a page that was stored is gone: " << i;
        ASSERT_TRUE(!is || i <= end) << "a page that was not put: " << i;
        if (!is) continue;
        ++found_pages;
        ASSERT_EQ(medium->get({key_of(i), StoredPart::pages}, soon()).value(), payload_of(i, bytes_of_page(i)));
      }
    }
    ASSERT_LE(found_pages, stored.size() + 2);
    ASSERT_LE(medium->stat(soon()).value().pages, all + 2 * (round + 1));
    ASSERT_GE(medium->stat(soon()).value().pages, all);
  }
  EXPECT_GT(all, 200U);
}

TEST_F(FilesProcesses, NoRowPromisesWhatAWriterEvictedThatWasKilled) {
  std::mt19937 random(2);
  std::map<PageKey, std::uint64_t> numbers;
  const PageStoreOptions options{.max_bytes = 400'000, .deadline = kPatience};
  std::uint64_t stored_pages = 0;
  for (std::uint64_t round = 0; round < 120; ++round) {
    const std::uint64_t first = 1 + round * kRound;
    const auto stored = write_and_kill(first, random, options);
    stored_pages += stored.size();
    for (std::uint64_t i = first; i < first + kRound; ++i) {
      if (i % kApart <= kMostPages) numbers[key_of(i)] = i;
    }
    const auto medium = open();
    check_all(*medium, numbers);
    if (HasFailure()) return;
  }
  const auto medium = open();
  EXPECT_GT(stored_pages, 100U);
  EXPECT_EQ(medium->collect(soon()).value().lost_pages, 0U);
  EXPECT_EQ(check_all(*medium, numbers), files());
  EXPECT_LE(medium->stat(soon()).value().bytes, 400'000U);
}

// In memory, where nobody waits for a disk, and with few pages, so that they meet.
class FilesRaces : public FilesProcesses {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    disk = (top / "disk").string();
    fs::create_directory(disk);
    ASSERT_EQ(::mount("none", disk.c_str(), "tmpfs", 0, "size=64m"), 0) << "root is needed: " << errno;
    store = disk + "/store";
    open();
  }
  void TearDown() override {
    EXPECT_EQ(::umount(disk.c_str()), 0);
    FilesTest::TearDown();
  }

  std::string disk;
};

TEST_F(FilesRaces, ARowHasItsFileWhileOthersPutAndEvictIt) {
  constexpr std::uint64_t kPages = 6;
  constexpr std::size_t kBytes = 500;
  const PageStoreOptions options{.max_bytes = 3 * (kBytes + kObjectHeaderBytes), .deadline = kPatience};
  std::vector<pid_t> children;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    children.push_back(start([&] {
      const auto medium = open(options);
      std::mt19937 random(seed);
      for (int i = 0; i < 2500; ++i) {
        const std::uint64_t number = 1 + random() % kPages;
        const Status put = put_page(*medium, {.number = number, .bytes = kBytes});
        EXPECT_TRUE(put.ok()) << put.error().message;
        if (random() % 16 == 0) {
          EXPECT_TRUE(medium->remove(key_of(1 + random() % kPages), soon()).ok());
        }
      }
    }));
  }
  const std::shared_ptr<const Folder> folder = Folder::open(store).value();
  const auto index = Index::open(folder, soon()).value();
  std::uint64_t rows_seen = 0, rows_without_file = 0;
  for (std::size_t running = children.size(); running > 0;) {
    const Status status = index->write(soon(), [&](Rows& rows) -> Status {
      std::uint64_t first = 0;
      const auto pages = rows.some(first, 100).value();
      for (const StoredPage& page : pages) {
        if (page.bytes() == 0) continue;  // a root
        ++rows_seen;
        rows_without_file +=
            folder->look_at({page.key, StoredPart::pages}).value().bytes == page.part_bytes[0] ? 0U : 1U;
      }
      return {};
    });
    ASSERT_TRUE(status.ok()) << status.error().message;
    int end = 0;
    for (; waitpid(-1, &end, WNOHANG) > 0; --running) EXPECT_EQ(end, 0);
  }
  EXPECT_GT(rows_seen, 1000U);
  EXPECT_EQ(rows_without_file, 0U);

  const auto medium = open();
  const StoreStat stat = medium->stat(soon()).value();
  EXPECT_EQ(stat.pages, files());
  EXPECT_EQ(stat.bytes, files() * (kBytes + kObjectHeaderBytes));
  for (std::uint64_t i = 1; i <= kPages; ++i) {
    if (is_there(*medium, i)) {
      EXPECT_EQ(medium->get({key_of(i), StoredPart::pages}, soon()).value(), payload_of(i, kBytes));
    }
  }
}

TEST_F(FilesProcesses, MakeASpoiledIndexAnewOnceAndLoseNoPut) {
  constexpr std::uint64_t kChildren = 4, kEach = 60;
  std::vector<pid_t> children;
  for (std::uint64_t child = 0; child < kChildren; ++child) {
    children.push_back(start([&] {
      const auto medium = open();
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t number = 1 + child * kEach + i;
        const Status put = put_page(*medium, {.number = number, .bytes = bytes_of_page(number)});
        EXPECT_TRUE(put.ok()) << put.error().message;
        EXPECT_TRUE(is_there(*medium, number)) << number;
        if (child == 0 && i % 10 == 5) fs::remove(store + "/index.sqlite");
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  const auto medium = open();
  std::map<PageKey, std::uint64_t> numbers;
  for (std::uint64_t i = 1; i <= kChildren * kEach; ++i) numbers[key_of(i)] = i;
  EXPECT_EQ(check_all(*medium, numbers), kChildren * kEach);
}

TEST_F(FilesProcesses, OfAForkOpenTheirOwn) {
  auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  const PageKey key = key_of(1);
  medium->use({&key, 1});  // there is a thread now, which the child has not
  const pid_t child = start([&] {
    EXPECT_EQ(medium->find({&key, 1}, soon()).error().code, Errc::io);
    EXPECT_EQ(put_page(*medium, {.number = 2}).error().code, Errc::io);
    EXPECT_EQ(medium->collect(soon()).error().code, Errc::io);
    medium->use({&key, 1});
    medium.reset();
    EXPECT_TRUE(put_page(*open(), {.number = 3}).ok());
  });
  EXPECT_EQ(end_of(child), 0);
  EXPECT_TRUE(is_there(*medium, 3));
  EXPECT_FALSE(is_there(*medium, 2));
}

// What the program below does in a process of its own.
TEST_F(FilesProcesses, DISABLED_Other) {
  const char* folder = std::getenv("ROTA_TEST_STORE");
  ASSERT_NE(folder, nullptr);
  const auto medium = open_files(folder, {.deadline = kPatience}).value();
  EXPECT_EQ(medium->get({key_of(1), StoredPart::pages}, soon()).value(), payload_of(1, 1000));
  EXPECT_TRUE(put_page(*medium, {.number = 2}).ok());
}

TEST_F(FilesProcesses, OfAnotherProgramShareThePages) {
  const auto medium = open();
  ASSERT_TRUE(put_page(*medium, {.number = 1}).ok());
  const std::string environment = "ROTA_TEST_STORE=" + store;
  const pid_t child = fork();
  if (child == 0) {
    const char* arguments[] = {"tests", "--gtest_also_run_disabled_tests",
                               "--gtest_filter=FilesProcesses.DISABLED_Other", "--gtest_brief=1", nullptr};
    const char* variables[] = {environment.c_str(), nullptr};
    execve("/proc/self/exe", const_cast<char**>(arguments), const_cast<char**>(variables));
    _exit(3);
  }
  EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(medium->get({key_of(2), StoredPart::pages}, soon()).value(), payload_of(2, 1000));
  EXPECT_TRUE(is_there(*medium, 2));
}

}  // namespace
}  // namespace rota::page_store::files
