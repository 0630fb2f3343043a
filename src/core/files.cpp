#include "core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace rota::core {
namespace {

constexpr int kNamesToTry = 16;

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() {
    if (is_open()) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const noexcept { return number_ >= 0; }
  int number() const noexcept { return number_; }
  bool close() noexcept { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

Error failed() { return {Errc::io, std::generic_category().message(errno)}; }

// Calls read() or write() again where a signal came between.
template <class Call>
ssize_t whole_call(const Call& call) noexcept {
  for (;;) {
    const ssize_t done = call();
    if (done >= 0 || errno != EINTR) return done;
  }
}

Status write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = whole_call([&] { return ::write(file, bytes.data(), bytes.size()); });
    if (done < 0) return failed();
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

}  // namespace

Result<std::optional<std::vector<std::byte>>> read_file(const std::string& path, std::uint64_t most_bytes) {
  using Contents = std::optional<std::vector<std::byte>>;
  constexpr std::size_t kAtOnce = std::size_t{1} << 16;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open() && errno == ENOENT) return Contents{};
  if (!file.is_open()) return failed();
  struct stat what{};
  if (::fstat(file.number(), &what) != 0) return failed();
  if (!S_ISREG(what.st_mode)) return Error{Errc::io, "is no regular file"};
  const auto size = static_cast<std::uint64_t>(what.st_size);
  if (size > most_bytes) return Error{Errc::io, text("is {} bytes long; at most {}", size, most_bytes)};

  std::vector<std::byte> bytes;
  bytes.reserve(size);
  for (;;) {  // a file may have grown since, and those of /proc have no size
    const std::size_t known = bytes.size();
    bytes.resize(known + kAtOnce);
    const ssize_t done = whole_call([&] { return ::read(file.number(), bytes.data() + known, kAtOnce); });
    if (done < 0) return failed();
    bytes.resize(known + static_cast<std::size_t>(done));
    if (bytes.size() > most_bytes) return Error{Errc::io, text("is longer than {} bytes", most_bytes)};
    if (done == 0) return Contents(std::move(bytes));
  }
}

Status replace_file(const std::string& path, std::span<const std::byte> bytes) {
  std::random_device random;
  std::string unfinished;
  int number = -1;
  for (int tries = 0; number < 0 && tries < kNamesToTry; ++tries) {
    unfinished = text("{}.{:08x}{:08x}.unfinished", path, random(), random());
    number = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);  // less the umask
    if (number < 0 && errno != EEXIST) return failed();
  }
  Descriptor file(number);
  if (!file.is_open()) return failed();
  Status status = write_all(file.number(), bytes);
  if (status.ok() && ::fsync(file.number()) != 0) status = failed();
  if (!file.close() && status.ok()) status = failed();
  if (status.ok() && std::rename(unfinished.c_str(), path.c_str()) != 0) status = failed();
  if (!status) ::unlink(unfinished.c_str());
  return status;
}

}  // namespace rota::core
