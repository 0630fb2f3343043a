#include "core/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace rota::core {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rota_files_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string path(std::string_view name) const { return (folder / name).string(); }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

  static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
  static std::string text_of(const std::string& path) {
    const auto found = read_file(path, 1U << 20).value();
    return found ? std::string(reinterpret_cast<const char*>(found->data()), found->size()) : "none";
  }
  void plant(const std::string& name, std::string_view text) const { std::ofstream(path(name)) << text; }

  fs::path folder;
};

TEST_F(Files, AreReplacedAndReadWhole) {
  EXPECT_EQ(text_of(path("a")), "none");
  for (const std::size_t size : {0U, 1U, 65'535U, 65'536U, 65'537U, 300'000U}) {
    const std::string text(size, 'x');
    ASSERT_TRUE(replace_file(path("a"), bytes_of(text)).ok());
    EXPECT_EQ(text_of(path("a")), text);
  }
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, OfProcHaveNoSizeAndAreReadAllTheSame) {
  EXPECT_FALSE(read_file("/proc/self/status", 1U << 20).value()->empty());
}

TEST_F(Files, BeyondTheLargestSizeAreRefused) {
  plant("a", "12345");
  EXPECT_TRUE(read_file(path("a"), 5).ok());
  EXPECT_FALSE(read_file(path("a"), 4).ok());
  EXPECT_FALSE(read_file("/proc/self/status", 4).ok());
}

TEST_F(Files, ThatAreNoFilesAreRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& name : {path("fifo"), folder.string(), std::string("/dev/zero")}) {
    const auto found = read_file(name, 1U << 20);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code, Errc::io);
    EXPECT_EQ(found.error().message, "is no regular file");
  }
}

TEST_F(Files, LinksThatSomeonePlantedAreNotWrittenThrough) {
  plant("victim", "precious");
  std::error_code ignored;  // ".unfinished" is there after the first round
  for (int number = 0; number < 100; ++number) {
    for (const std::string& name : {"." + std::to_string(getpid()) + "." + std::to_string(number) + ".unfinished",
                                    "." + std::to_string(number) + ".unfinished", std::string(".unfinished")}) {
      fs::create_symlink("victim", path("a") + name, ignored);
    }
  }
  const std::size_t planted = files();
  for (int round = 0; round < 10; ++round) ASSERT_TRUE(replace_file(path("a"), bytes_of("new")).ok());
  EXPECT_EQ(text_of(path("victim")), "precious");
  EXPECT_EQ(text_of(path("a")), "new");
  EXPECT_EQ(files(), planted + 1);
}

// The name itself may be a link: it is replaced, not what it leads to.
TEST_F(Files, ALinkIsReplacedByAFile) {
  plant("victim", "precious");
  ASSERT_EQ(symlink("victim", path("a").c_str()), 0);
  ASSERT_TRUE(replace_file(path("a"), bytes_of("new")).ok());
  EXPECT_EQ(text_of(path("victim")), "precious");
  EXPECT_EQ(text_of(path("a")), "new");
}

TEST_F(Files, FailuresLeaveTheOldOneAndNothingElse) {
  plant("a", "old");
  fs::create_directory(path("folder"));
  plant("folder/inside", "x");
  EXPECT_FALSE(replace_file(path("folder"), bytes_of("new")).ok());
  EXPECT_FALSE(replace_file(path("missing/a"), bytes_of("new")).ok());

  // A disk that is full, half-way through.
  rlimit callers{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &callers), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = callers.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = replace_file(path("a"), bytes_of(std::string(5000, 'x')));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &callers), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::io);
  EXPECT_EQ(text_of(path("a")), "old");
  EXPECT_EQ(files(), 2U);
}

}  // namespace
}  // namespace rota::core
