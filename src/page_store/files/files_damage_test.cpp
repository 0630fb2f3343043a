#include <sqlite3.h>
#include <sys/mount.h>

#include <ctime>
#include <random>
#include <thread>

#include "page_store/files/files_testing.h"
#include "page_store/files/folder.h"

namespace rota::page_store::files {
namespace {

// Whatever is done to its files, a store serves what was put, or nothing.
class FilesDamage : public FilesTest {
 protected:
  static constexpr std::uint64_t kPages = 12;
  static constexpr std::size_t kBytes = 3000;

  void fill(Medium& medium) const {
    for (std::uint64_t i = 1; i <= kPages; ++i) {
      ASSERT_TRUE(put_page(medium, {.number = i, .parent = i - 1, .index = i - 1, .bytes = kBytes}).ok());
    }
  }

  // How many pages are there; each must be right.
  static std::uint64_t right_pages(Medium& medium) {
    std::uint64_t pages = 0;
    for (std::uint64_t i = 1; i <= kPages; ++i) {
      if (!is_there(medium, i)) continue;
      const auto got = medium.get({key_of(i), StoredPart::pages}, soon());
      if (!got) continue;
      EXPECT_EQ(*got, payload_of(i, kBytes));
      ++pages;
    }
    return pages;
  }

  Status fetch_all(Medium& medium, std::uint64_t number, std::vector<std::byte>& to) const {
    to.assign(kBytes, std::byte{0});
    const auto fetch = medium.fetch({{{key_of(number), StoredPart::pages}, kBytes}}, std::chrono::seconds(20)).value();
    return fetch->read(0, 0, to);
  }
};

TEST_F(FilesDamage, AFlippedBitIsNeverServed) {
  const auto medium = open();
  fill(*medium);
  std::mt19937 random(7);
  std::vector<std::byte> fetched;
  int header_flips = 0;
  for (int flip = 0; flip < 1000; ++flip) {
    const std::uint64_t number = 1 + random() % kPages;
    std::string bytes = bytes_of(file_of(number));
    ASSERT_EQ(bytes.size(), kObjectHeaderBytes + kBytes);
    const std::size_t at = flip % 2 == 0 ? random() % kObjectHeaderBytes : random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    write(file_of(number), bytes);
    const bool is_in_header = at < kObjectHeaderBytes;
    header_flips += is_in_header ? 1 : 0;
    if (is_in_header && flip % 4 == 0) {
      const Status status = fetch_all(*medium, number, fetched);
      ASSERT_FALSE(status.ok()) << "a header with a flipped bit at " << at;
      EXPECT_EQ(status.error().code, Errc::io);
    } else {
      const auto got = medium->get({key_of(number), StoredPart::pages}, soon());
      ASSERT_FALSE(got.ok()) << "a bit at " << at;
      EXPECT_EQ(got.error().code, Errc::io);
    }
    // Files of another version are left alone; all else is forgotten, and can be put again.
    const bool is_version = at >= 8 && at < 12;
    EXPECT_EQ(is_there(*medium, number), is_version) << at;
    EXPECT_EQ(fs::exists(file_of(number)), is_version) << at;
    if (is_version) {
      ASSERT_TRUE(medium->remove(key_of(number), soon()).ok());
    }
    ASSERT_TRUE(put_page(*medium, {.number = number, .parent = number - 1, .index = number - 1, .bytes = kBytes}).ok());
  }
  EXPECT_GT(header_flips, 400);
  EXPECT_EQ(right_pages(*medium), kPages);
}

TEST_F(FilesDamage, AFileOfAnotherSizeIsNeverServed) {
  const auto medium = open();
  fill(*medium);
  std::vector<std::byte> fetched;
  for (std::size_t size = 0; size < kBytes + 300; size += size < 140 ? 1 : 37) {
    std::string bytes = bytes_of(file_of(3));
    if (size == bytes.size()) continue;
    bytes.resize(size, 'x');
    write(file_of(3), bytes);
    if (size % 2 == 0) {
      ASSERT_FALSE(medium->get({key_of(3), StoredPart::pages}, soon()).ok()) << size;
    } else {
      ASSERT_FALSE(fetch_all(*medium, 3, fetched).ok()) << size;
    }
    EXPECT_FALSE(is_there(*medium, 3));
    EXPECT_FALSE(fs::exists(file_of(3)));
    ASSERT_TRUE(put_page(*medium, {.number = 3, .parent = 2, .index = 2, .bytes = kBytes}).ok());
  }
  EXPECT_EQ(right_pages(*medium), kPages);
}

TEST_F(FilesDamage, AFileThatIsCutWhileItIsReadIsAnError) {
  const auto medium = open();
  fill(*medium);
  const auto fetch = medium->fetch({{{key_of(1), StoredPart::pages}, kBytes}}, std::chrono::seconds(1)).value();
  std::vector<std::byte> to(100);
  ASSERT_TRUE(fetch->read(0, 0, to).ok());
  fs::resize_file(file_of(1), 1000);
  EXPECT_EQ(fetch->read(0, 2000, to).error().code, Errc::io);
}

TEST_F(FilesDamage, AFileUnderAnotherNameIsNotServed) {
  const auto medium = open();
  fill(*medium);
  fs::copy_file(file_of(2), file_of(5), fs::copy_options::overwrite_existing);
  EXPECT_FALSE(medium->get({key_of(5), StoredPart::pages}, soon()).ok());
  EXPECT_FALSE(is_there(*medium, 5));
  fs::copy_file(file_of(2), file_of(6, StoredPart::state));
  std::vector<std::byte> fetched;
  EXPECT_EQ(medium->collect(soon()).value().adopted_pages, 0U);
  EXPECT_FALSE(fs::exists(file_of(6, StoredPart::state)));
  EXPECT_EQ(right_pages(*medium), kPages - 1);
}

TEST_F(FilesDamage, AnObjectOfAnotherSizeThanWantedIsRefused) {
  const auto medium = open();
  fill(*medium);
  const auto fetch = medium->fetch({{{key_of(1), StoredPart::pages}, kBytes + 1}}, std::chrono::seconds(1)).value();
  std::vector<std::byte> to(100);
  const Status status = fetch->read(0, 0, to);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(hex(key_of(1))), std::string::npos) << status.error().message;
}

TEST_F(FilesDamage, AnIndexThatIsLostIsMadeAnew) {
  {
    fill(*open());
  }
  fs::remove(store + "/index.sqlite");
  const auto medium = open();
  EXPECT_EQ(right_pages(*medium), kPages);
  const StoreStat stat = medium->stat(soon()).value();
  EXPECT_EQ(stat.pages, kPages);
  EXPECT_EQ(stat.bytes, kPages * (kBytes + kObjectHeaderBytes));
  EXPECT_EQ(found(*medium, 7).parent, key_of(6));
  EXPECT_EQ(found(*medium, 7).index, 6U);

  fs::remove(store + "/index.sqlite");  // under those who have it open
  const auto other = open();
  ASSERT_TRUE(put_page(*medium, {.number = 100}).ok());
  EXPECT_TRUE(is_there(*other, 100));
  EXPECT_EQ(right_pages(*medium), kPages);
  EXPECT_EQ(right_pages(*other), kPages);
}

TEST_F(FilesDamage, AnIndexIsMadeAnewBehindThoseWhoDoNotWait) {
  {
    fill(*open({.max_bytes = 1'000'000}));
  }
  fs::remove(store + "/index.sqlite");
  const auto medium = open({.deadline = std::chrono::milliseconds(0)});
  const auto begin = Clock::now();
  while (!medium->stat(soon(std::chrono::milliseconds(0))) && Clock::now() - begin < std::chrono::seconds(20)) {
  }
  EXPECT_EQ(right_pages(*medium), kPages);
  EXPECT_EQ(medium->stat(soon()).value().max_bytes, 1'000'000U);
}

// Who was to make its index anew does not look for its lock without end.
TEST_F(FilesDamage, AFolderThatIsGoneIsAnError) {
  const auto medium = open();
  fill(*medium);
  const std::shared_ptr<const Folder> folder = Folder::open(store).value();
  const auto held = FolderLock::take(*folder, FolderLock::Kind::shared, soon());
  ASSERT_TRUE(held.ok());
  fs::remove(store + "/index.sqlite");
  const auto says = [&] { return medium->stat(soon(std::chrono::milliseconds(20))).error().message; };
  EXPECT_NE(says().find("made anew"), std::string::npos) << says();
  fs::rename(store, store + ".elsewhere");
  EXPECT_NE(says().find("No such file"), std::string::npos) << says();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // longer than one wait for the lock
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
  fs::rename(store + ".elsewhere", store);
}

TEST_F(FilesDamage, AnIndexThatIsCutIsMadeAnewOrReadAsFarAsItGoes) {
  {
    fill(*open());
  }
  const std::string whole = bytes_of(store + "/index.sqlite");
  for (std::size_t size = 0; size < whole.size() + 3000; size += 1777) {
    for (const char* ending : {"-wal", "-shm"}) fs::remove(store + "/index.sqlite" + ending);
    write(store + "/index.sqlite", size < whole.size() ? whole.substr(0, size) : whole + std::string(size, 'x'));
    const auto medium = open();
    right_pages(*medium);
    medium->collect(soon()).value();
    EXPECT_EQ(right_pages(*medium), kPages) << size;
    EXPECT_TRUE(put_page(*medium, {.number = 1000 + size}).ok());
  }
}

TEST_F(FilesDamage, AnIndexOfRandomBytesIsMadeAnew) {
  const auto old = open();
  fill(*old);
  std::mt19937 random(3);
  for (const std::size_t size : {0U, 1U, 100U, 4096U, 100'000U}) {
    std::string bytes(size, 0);
    for (char& byte : bytes) byte = static_cast<char>(random());
    write(store + "/index.sqlite", bytes);
    write(store + "/index.sqlite-wal", bytes);
    EXPECT_EQ(right_pages(*open()), kPages) << size;
    EXPECT_EQ(right_pages(*old), kPages) << size;
  }
}

TEST_F(FilesDamage, AnotherDatabaseIsNotTakenForTheIndex) {
  {
    fill(*open());
  }
  for (const char* tables :
       {"CREATE TABLE recipes(name TEXT)", "CREATE TABLE pages(key BLOB PRIMARY KEY, parent BLOB)",
        "CREATE VIEW pages AS SELECT 1 AS key; CREATE TABLE totals(pages, bytes, max_bytes)", "VACUUM"}) {
    for (const char* ending : {"", "-wal", "-shm"}) fs::remove(store + "/index.sqlite" + ending);
    sqlite3* other = nullptr;
    ASSERT_EQ(sqlite3_open((store + "/index.sqlite").c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, tables, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(other);
    EXPECT_EQ(right_pages(*open()), kPages) << tables;
  }
}

TEST_F(FilesDamage, AFlippedBitInTheIndexServesNothingWrong) {
  {
    fill(*open());
  }
  std::mt19937 random(5);
  for (int flip = 0; flip < 300; ++flip) {
    const auto medium = open();
    std::string bytes = bytes_of(store + "/index.sqlite");
    for (int more = 0; more < 3; ++more) {
      const std::size_t at = random() % (more == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 200));
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    for (const char* ending : {"-wal", "-shm"}) fs::remove(store + "/index.sqlite" + ending);
    fs::remove(store + "/index.sqlite");
    write(store + "/index.sqlite", bytes);
    right_pages(*medium);
    const auto other = open();
    static_cast<void>(put_page(*other, {.number = 1 + random() % kPages, .bytes = kBytes}));
    static_cast<void>(other->remove(key_of(1 + random() % kPages), soon()));
    right_pages(*other);
    static_cast<void>(other->collect(soon()));
    fs::remove(store + "/index.sqlite");
    const auto again = open();
    fill(*again);
    EXPECT_EQ(right_pages(*again), kPages);
  }
}

// A small file system of its own.
class FilesFullDisk : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    disk = (top / "disk").string();
    fs::create_directory(disk);
    ASSERT_EQ(::mount("none", disk.c_str(), "tmpfs", 0, "size=6m"), 0) << "root is needed: " << errno;
    store = disk + "/store";
  }
  void TearDown() override {
    EXPECT_EQ(::umount(disk.c_str()), 0);
    FilesTest::TearDown();
  }

  std::string disk;
};

TEST_F(FilesFullDisk, GivesErrorsAndServesWhatIsThere) {
  constexpr std::size_t kBytes = 60'000;
  const auto medium = open();
  std::uint64_t stored = 0;
  Status status;
  while (stored < 1000) {
    status = put_page(*medium, {.number = stored + 1, .parent = stored, .bytes = kBytes});
    if (!status) break;
    ++stored;
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::io);
  EXPECT_GT(stored, 40U);
  EXPECT_TRUE(fs::is_empty(store + "/tmp"));
  EXPECT_EQ(files(), stored);
  EXPECT_FALSE(is_there(*medium, stored + 1));
  for (std::uint64_t i = 1; i <= stored; ++i) {
    EXPECT_EQ(medium->get({key_of(i), StoredPart::pages}, soon()).value(), payload_of(i, kBytes));
  }

  write(disk + "/others", std::string(6 << 20, 'x'));  // to the last byte
  EXPECT_EQ(put_page(*medium, {.number = 5000, .bytes = 1}).error().code, Errc::io);
  EXPECT_EQ(medium->get({key_of(1), StoredPart::pages}, soon()).value(), payload_of(1, kBytes));
  EXPECT_TRUE(is_there(*medium, stored));
  EXPECT_TRUE(is_there(*open(), stored));

  fs::remove(disk + "/others");
  for (std::uint64_t i = stored; i > stored - 10; --i) medium->remove(key_of(i), soon()).value();
  for (std::uint64_t i = stored - 9; i < stored - 4; ++i) {
    EXPECT_TRUE(put_page(*medium, {.number = i, .parent = i - 1, .bytes = kBytes}).ok()) << i;
  }
  EXPECT_EQ(medium->stat(soon()).value().pages, stored - 5);
  EXPECT_EQ(files(), stored - 5);
}

}  // namespace
}  // namespace rota::page_store::files
