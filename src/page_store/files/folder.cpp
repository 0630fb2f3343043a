#include "page_store/files/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/files.h"

namespace rota::page_store::files {
namespace {

constexpr std::string_view kMarker = "rota-store", kMarkerLine = "rota page store 1\n", kLimitWord = "max_bytes ";
constexpr std::uint64_t kMarkerBytes = 4096, kWriteAtOnceBytes = std::uint64_t{4} << 20;
constexpr int kNamesToTry = 16;
constexpr mode_t kFileMode = 0660, kFolderMode = 0770;  // less the umask
constexpr std::uint64_t kLeftOverMs = 3'600'000;

// Of a file below the folder: it has no such name, or one on the way is no folder.
bool is_gone(int error) { return error == ENOENT || error == ELOOP || error == ENOTDIR; }

std::string reason() { return std::generic_category().message(errno); }

// Calls again where a signal came between.
template <class Call>
auto whole_call(const Call& call) noexcept {
  for (;;) {
    const auto done = call();
    if (done >= 0 || errno != EINTR) return done;
  }
}

Descriptor open_folder(int below, const char* name) {
  return Descriptor(whole_call([&] { return ::openat(below, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
}

FileLook look_of(const struct stat& what) {
#if defined(__APPLE__)
  const timespec changed = what.st_mtimespec;
#else
  const timespec changed = what.st_mtim;
#endif
  return {.id = {what.st_dev, what.st_ino},
          .bytes = static_cast<std::uint64_t>(what.st_size),
          .changed_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(changed.tv_sec, 0)) * 1000 +
                        static_cast<std::uint64_t>(changed.tv_nsec / 1'000'000)};
}

// Names in a folder, but not "." and "..".
std::optional<std::vector<std::string>> names_in(const Descriptor& folder) {
  const int again = ::openat(folder.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(again), ::closedir);
  if (!entries) {
    ::close(again);
    return {};
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) return {};
  return names;
}

// The room is the first two digits of the key; the file's name has the others, and the part.
std::string room_of(const PageKey& key) { return hex(key).substr(0, 2); }
std::string file_of(const ObjectName& name) { return text(name).substr(2); }

std::optional<ObjectName> name_of(const std::string& room, std::string_view file) {
  const std::size_t dot = file.find('.');
  if (dot == std::string_view::npos) return {};
  const auto key = page_key(room + std::string(file.substr(0, dot)));
  if (!key) return {};
  for (const StoredPart part : kStoredParts) {
    if (file.substr(dot + 1) == rota::name(part)) return ObjectName{*key, part};
  }
  return {};
}

std::string lock_path(const Folder& folder) { return folder.path() + "/lock"; }

Error io_error(const std::string& path, const std::string& what) {
  return {Errc::io, core::text("page store: {}: {}", path, what)};
}

// A folder that has nothing in it but what another process writes there just now, or a file system of its own.
bool is_new(const std::vector<std::string>& names) {
  return std::ranges::all_of(names,
                             [](const std::string& name) { return name.starts_with(kMarker) || name == "lost+found"; });
}

struct Marker {
  std::optional<std::uint64_t> max_bytes;
};

Result<std::optional<Marker>> read_marker(const std::string& folder) {
  const std::string path = core::text("{}/{}", folder, kMarker);
  const auto bytes = core::read_file(path, kMarkerBytes);
  if (!bytes) return io_error(path, bytes.error().message);
  const auto& contents = *bytes;
  if (!contents) return std::optional<Marker>{};
  std::string_view rest(reinterpret_cast<const char*>(contents->data()), contents->size());
  if (!rest.starts_with(kMarkerLine)) {
    return Error{Errc::unsupported, core::text("page store: {}: this build knows version 1 alone", path)};
  }
  rest.remove_prefix(kMarkerLine.size());
  if (rest.empty()) return std::optional(Marker{});
  std::uint64_t number = 0;
  if (!rest.starts_with(kLimitWord)) return io_error(path, "has a line that is none of a page store's");
  rest.remove_prefix(kLimitWord.size());
  const auto [end, error] = std::from_chars(rest.begin(), rest.end(), number);
  if (error != std::errc{} || std::string_view(end, rest.end()) != "\n")
    return io_error(path, "has no number of bytes");
  return std::optional(Marker{number});
}

Status write_marker(const std::string& folder, const Marker& marker) {
  std::string contents(kMarkerLine);
  if (marker.max_bytes) contents += core::text("{}{}\n", kLimitWord, *marker.max_bytes);
  const std::string path = core::text("{}/{}", folder, kMarker);
  if (Status status = core::replace_file(path, std::as_bytes(std::span(contents))); !status) {
    return io_error(path, status.error().message);
  }
  return {};
}

Status write_all(const Descriptor& file, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (Clock::now() >= deadline) return Error{Errc::io, "the deadline passed"};
    const std::size_t some = std::min<std::size_t>(bytes.size(), kWriteAtOnceBytes);
    const ssize_t done = whole_call([&] { return ::write(file.number(), bytes.data(), some); });
    if (done <= 0) return Error{Errc::io, done < 0 ? reason() : "no byte could be written"};
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

}  // namespace

void Descriptor::close() noexcept {
  if (is_open()) ::close(std::exchange(number_, -1));
}

std::uint64_t now_ms() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

FileId file_at(const std::string& path) noexcept {
  struct stat what{};
  if (::lstat(path.c_str(), &what) != 0) return {};
  return {what.st_dev, what.st_ino};
}

Status read_at(const Descriptor& file, std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t done =
        whole_call([&] { return ::pread(file.number(), to.data(), to.size(), static_cast<off_t>(offset)); });
    if (done < 0) return Error{Errc::io, reason()};
    if (done == 0) return Error{Errc::io, "ends too early"};
    offset += static_cast<std::uint64_t>(done);
    to = to.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

ObjectFile read_object_file(Descriptor file, const ObjectName& name) {
  using Kind = ObjectFile::Kind;
  ObjectFile found{.file = std::move(file)};
  const auto no_object = [&](Kind kind, std::string_view what) {
    found.kind = kind;
    found.status = Error{Errc::io, core::text("stored object: {}: {}", text(name), what)};
    return std::move(found);
  };
  struct stat what{};
  if (::fstat(found.file.number(), &what) != 0) return no_object(Kind::unreadable, reason());
  found.look = look_of(what);
  if (!S_ISREG(what.st_mode)) return no_object(Kind::wrong, "is no regular file");
  if (found.look.bytes < kObjectHeaderBytes) return no_object(Kind::wrong, "is shorter than a header");
  std::array<std::byte, kObjectHeaderBytes> bytes{};
  if (const Status status = read_at(found.file, 0, bytes); !status) {
    return no_object(Kind::unreadable, status.error().message);
  }
  const auto header = read_object_header(bytes);
  if (!header) {
    const bool is_of_others = header.error().code == Errc::unsupported;
    return no_object(is_of_others ? Kind::unreadable : Kind::wrong, header.error().message);
  }
  found.header = *header;
  if (const Status status = check_object(found.header, name); !status) {
    return no_object(Kind::wrong, status.error().message);
  }
  if (found.header.name.key == found.header.parent) return no_object(Kind::wrong, "is behind itself");
  if (found.look.bytes - kObjectHeaderBytes != found.header.payload_bytes) {
    return no_object(Kind::wrong, core::text("is {} bytes long; wanted {}", found.look.bytes,
                                             kObjectHeaderBytes + found.header.payload_bytes));
  }
  found.kind = Kind::right;
  return found;
}

Result<std::shared_ptr<Folder>> Folder::open(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) return io_error(path, reason());
  const Descriptor top(whole_call([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!top.is_open()) return io_error(path, errno == ENOTDIR ? "is no folder" : reason());
  // As it is now: SQLite follows no link, and the process may go to another folder.
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), std::free);
  if (!resolved) return io_error(path, reason());
  const auto marker = read_marker(path);
  if (!marker) return marker.error();
  if (!*marker) {
    const auto names = names_in(top);
    if (!names) return io_error(path, reason());
    if (!is_new(*names)) return io_error(path, "has files in it, and is no page store");
    if (Status status = write_marker(path, {}); !status) return status.error();
  }
  std::array<Descriptor, 2> rooms;
  constexpr std::array<const char*, 2> kNames{"pages", "tmp"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::string room = core::text("{}/{}", path, kNames[i]);
    if (::mkdirat(top.number(), kNames[i], kFolderMode) != 0 && errno != EEXIST) return io_error(room, reason());
    rooms[i] = open_folder(top.number(), kNames[i]);
    if (!rooms[i].is_open()) return io_error(room, reason());
  }
  ::fsync(top.number());
  return std::shared_ptr<Folder>(new Folder(resolved.get(), std::move(rooms[0]), std::move(rooms[1])));
}

Error Folder::failed(const std::string& what) const { return io_error(path_, what); }

Result<std::optional<std::uint64_t>> Folder::max_bytes() const {
  const auto marker = read_marker(path_);
  if (!marker) return marker.error();
  return *marker ? (*marker)->max_bytes : std::nullopt;
}

Status Folder::set_max_bytes(std::uint64_t max_bytes) const {
  const auto known = this->max_bytes();
  if (!known) return known.error();
  return *known == max_bytes ? Status{} : write_marker(path_, {max_bytes});
}

Descriptor Folder::open_room(const PageKey& key, Missing missing) const {
  const std::string room = room_of(key);
  Descriptor found = open_folder(pages_.number(), room.c_str());
  if (found.is_open() || errno != ENOENT || missing == Missing::stays) return found;
  if (::mkdirat(pages_.number(), room.c_str(), kFolderMode) != 0 && errno != EEXIST) return found;
  if (::fsync(pages_.number()) != 0) return found;
  return open_folder(pages_.number(), room.c_str());
}

Result<std::pair<Descriptor, std::string>> Folder::open_new_file() const {
  std::random_device random;
  for (int tries = 0; tries < kNamesToTry; ++tries) {
    std::string name = core::text("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    Descriptor file(whole_call([&] {
      return ::openat(unfinished_.number(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      kFileMode);
    }));
    if (file.is_open()) return std::pair(std::move(file), std::move(name));
    if (errno != EEXIST) break;
  }
  return failed(core::text("tmp: {}", reason()));
}

Result<std::string> Folder::new_file() const {
  const auto made = open_new_file();
  if (!made) return made.error();
  return core::text("{}/tmp/{}", path_, made->second);
}

Status Folder::write(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline) const {
  auto made = open_new_file();
  if (!made) return made.error();
  Status status = write_and_move(header, payload, deadline, *made);
  if (!status) {
    ::unlinkat(unfinished_.number(), made->second.c_str(), 0);
    return failed(core::text("{}: {}", text(header.name), status.error().message));
  }
  return {};
}

Status Folder::write_and_move(const ObjectHeader& header, std::span<const std::byte> payload, Deadline deadline,
                              const std::pair<Descriptor, std::string>& to) const {
  const auto& [file, unfinished] = to;
  if (Status status = write_all(file, write_object_header(header), deadline); !status) return status;
  if (Status status = write_all(file, payload, deadline); !status) return status;
  if (::fsync(file.number()) != 0) return Error{Errc::io, reason()};
  const Descriptor room = open_room(header.name.key, Missing::is_made);
  if (!room.is_open()) return Error{Errc::io, reason()};
  const std::string name = file_of(header.name);
  if (::renameat(unfinished_.number(), unfinished.c_str(), room.number(), name.c_str()) != 0) {
    return Error{Errc::io, reason()};
  }
  if (::fsync(room.number()) != 0) return Error{Errc::io, reason()};
  return {};
}

ObjectFile Folder::open_object(const ObjectName& name) const {
  const auto no_file = [&] {
    const bool is_wrong = is_gone(errno) || errno == ENXIO;
    Status status = failed(core::text("{}: {}", text(name), reason()));
    const auto look = look_at(name);
    return ObjectFile{.kind = is_wrong ? ObjectFile::Kind::wrong : ObjectFile::Kind::unreadable,
                      .look = look ? *look : FileLook{},
                      .status = std::move(status)};
  };
  const Descriptor room = open_room(name.key, Missing::stays);
  if (!room.is_open()) return no_file();
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const std::string file_name = file_of(name);  // here: a call of the system throws nothing
  Descriptor file(whole_call([&] { return ::openat(room.number(), file_name.c_str(), kFlags); }));
  if (!file.is_open()) return no_file();
  return read_object_file(std::move(file), name);
}

Result<FileLook> Folder::look_at(const ObjectName& name) const {
  const std::string file = file_of(name);
  const Descriptor room = open_room(name.key, Missing::stays);
  struct stat what{};
  if (room.is_open() && ::fstatat(room.number(), file.c_str(), &what, AT_SYMLINK_NOFOLLOW) == 0) return look_of(what);
  if (is_gone(errno)) return FileLook{};
  return failed(core::text("{}: {}", text(name), reason()));
}

Status Folder::remove(const ObjectName& name) const {
  const std::string file = file_of(name);
  const Descriptor room = open_room(name.key, Missing::stays);
  if (room.is_open() && ::unlinkat(room.number(), file.c_str(), 0) == 0) return {};
  return is_gone(errno) ? Status() : failed(core::text("{}: {}", text(name), reason()));
}

Status Folder::each_object(const std::function<bool(const ObjectName&)>& each) const {
  const auto rooms = names_in(pages_);
  if (!rooms) return failed(core::text("pages: {}", reason()));
  for (const std::string& room : std::set<std::string>(rooms->begin(), rooms->end())) {
    const Descriptor folder = open_folder(pages_.number(), room.c_str());
    if (room.size() != 2 || !folder.is_open()) continue;
    const auto files = names_in(folder);
    if (!files) return failed(core::text("pages/{}: {}", room, reason()));
    std::vector<ObjectName> names;
    for (const std::string& file : *files) {
      if (const auto name = name_of(room, file)) names.push_back(*name);
    }
    std::ranges::sort(names);
    if (!std::ranges::all_of(names, each)) return {};
  }
  return {};
}

std::uint64_t Folder::remove_left_overs() const {
  std::uint64_t removed = 0;
  const auto names = names_in(unfinished_);
  if (!names) return 0;
  for (const std::string& name : *names) {
    struct stat what{};
    if (::fstatat(unfinished_.number(), name.c_str(), &what, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (look_of(what).changed_ms + kLeftOverMs >= now_ms()) continue;
    if (::unlinkat(unfinished_.number(), name.c_str(), 0) == 0) ++removed;
  }
  return removed;
}

Result<FolderLock> FolderLock::take(const Folder& folder, Kind kind, Deadline deadline) {
  auto taken = take_in_time(folder, kind, deadline);
  if (!taken) return taken.error();
  if (!*taken) {
    return io_error(lock_path(folder), "the deadline passed while another process made the index anew");
  }
  return std::move(**taken);
}

Result<std::optional<FolderLock>> FolderLock::take_in_time(const Folder& folder, Kind kind, Deadline deadline) {
  const std::string path = lock_path(folder);
  Descriptor file(
      whole_call([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kFileMode); }));
  if (!file.is_open()) return io_error(path, reason());
  const int how = (kind == Kind::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  for (Clock::duration pause = std::chrono::microseconds(100);;
       pause = std::min<Clock::duration>(2 * pause, std::chrono::milliseconds(5))) {
    if (whole_call([&] { return ::flock(file.number(), how); }) == 0) return std::optional(FolderLock(std::move(file)));
    if (errno != EWOULDBLOCK) return io_error(path, reason());
    const auto now = Clock::now();
    if (now >= deadline) return std::optional<FolderLock>();
    std::this_thread::sleep_for(std::min(pause, deadline - now));
  }
}

// A child of a process that forked has the same lock: closing it would leave it held.
FolderLock::~FolderLock() {
  if (file_.is_open()) ::flock(file_.number(), LOCK_UN);
}

}  // namespace rota::page_store::files
