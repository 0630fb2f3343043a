#include "store/raw_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/command.h"

namespace rota::tool {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Failure(Exit::failed_check, fmt::format("{}: {}", path, std::generic_category().message(errno)),
                "rota store --help");
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    if (number_ < 0) fail(path);
  }
  ~OpenFile() { ::close(number_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const noexcept { return number_; }

 private:
  int number_;
};

}  // namespace

RawFiles::RawFiles(const std::string& folder) : folder_(folder + "/raw-XXXXXX") {
  if (::mkdtemp(folder_.data()) == nullptr) fail(folder_);
}

RawFiles::~RawFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string RawFiles::path_of(std::size_t number) const { return fmt::format("{}/{}", folder_, number); }

void RawFiles::write(std::size_t number, std::span<const std::byte> bytes) const {
  const std::string path = path_of(number);
  const OpenFile file(path, O_WRONLY | O_CREAT | O_EXCL);
  while (!bytes.empty()) {
    const ssize_t done = ::write(file.number(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(path);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  if (::fsync(file.number()) != 0) fail(path);
}

void RawFiles::read(std::size_t number, std::span<std::byte> to) const {
  const std::string path = path_of(number);
  const OpenFile file(path, O_RDONLY);
  for (std::size_t at = 0; at < to.size();) {
    const ssize_t done = ::pread(file.number(), to.data() + at, to.size() - at, static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(path);
    at += static_cast<std::size_t>(done);
  }
}

}  // namespace rota::tool
