#include "core/host_limits.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/files.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace rota::core {
namespace {

constexpr std::uint64_t kMostFileBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMostPathBytes = 4096;
constexpr std::uint64_t kUnlimitedBytes = std::uint64_t{1} << 60;  // what "no limit" is in version 1, and beyond

std::string contents(const std::string& path) {
  auto read = read_file(path, kMostFileBytes);
  if (!read) return {};
  const std::vector<std::byte> bytes = std::move(read).value().value_or(std::vector<std::byte>{});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The parts between separators, empty ones included.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool names(std::string_view list, std::string_view wanted, char separator = ',') {
  const auto parts = split(list, separator);
  return std::ranges::find(parts, wanted) != parts.end();
}

// A positive number and nothing else.
std::optional<std::uint64_t> number(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value == 0) return std::nullopt;
  return value;
}

// mountinfo writes spaces and the like as a backslash and three octal digits.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 3);
    const bool octal = std::ranges::all_of(digits, [](char digit) { return digit >= '0' && digit <= '7'; });
    const bool escaped = text[i] == '\\' && digits.size() == 3 && octal;
    unsigned code = 0;
    for (const char digit : digits) code = code * 8 + static_cast<unsigned>(digit - '0');
    plain += escaped ? static_cast<char>(code) : text[i];
    if (escaped) i += 3;
  }
  return plain;
}

struct Mount {
  std::string group, folder;       // which group lies in which folder
  std::string_view type, options;  // "cgroup2", or "cgroup" with the controllers among the options
};

// "36 35 98:0 /group /folder rw,noatime master:1 - cgroup source options", with any number of fields before the dash.
std::vector<Mount> mounts_in(std::string_view mountinfo) {
  constexpr std::size_t kGroup = 3, kFolder = 4, kFirstOptional = 6;
  std::vector<Mount> mounts;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin() + static_cast<std::ptrdiff_t>(std::min(kFirstOptional, fields.size())),
                                fields.end(), "-");
    if (fields.end() - dash < 4) continue;
    if (dash[1] != "cgroup" && dash[1] != "cgroup2") continue;
    mounts.push_back({unescaped(fields[kGroup]), unescaped(fields[kFolder]), dash[1], dash[3]});
  }
  return mounts;
}

// What of `path` lies below `group`; nothing where it lies elsewhere.
std::optional<std::string_view> below(std::string_view path, std::string_view group) {
  if (group == "/") group = "";
  if (!path.starts_with(group)) return std::nullopt;
  path.remove_prefix(group.size());
  if (path == "/") return "";
  return path.empty() || path.front() == '/' ? std::optional(path) : std::nullopt;
}

// The folders of a group and of all that it lies in, as far as they are mounted.
std::vector<std::string> folders_of(const std::string& root, const std::vector<const Mount*>& mounts,
                                    std::string_view path) {
  if (mounts.empty() || path.size() > kMostPathBytes) return {};
  const Mount* mount = mounts.front();
  std::string_view inside;
  for (const Mount* const other : mounts) {
    const auto found = below(path, other->group);
    if (!found) continue;
    mount = other;
    inside = *found;
    break;
  }
  if (names(inside, "..", '/')) inside = "";  // no group of ours
  std::vector<std::string> folders;
  for (;;) {
    folders.push_back(root + mount->folder + std::string(inside));
    if (inside.empty()) return folders;
    inside = inside.substr(0, inside.rfind('/'));
  }
}

template <class Value>
void lower(std::optional<Value>& limit, std::optional<Value> found) {
  if (found && (!limit || *found < *limit)) limit = found;
}

std::optional<std::uint32_t> cpus_of(std::string_view quota, std::string_view period) {
  const auto time = number(quota);
  const auto of = number(period);
  if (!time || !of) return std::nullopt;
  const std::uint64_t whole = (*time - 1) / *of + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(whole, std::numeric_limits<std::uint32_t>::max()));
}

std::optional<std::uint64_t> bytes_of(std::string_view text) {
  const auto bytes = number(text);
  return bytes && *bytes < kUnlimitedBytes ? bytes : std::nullopt;
}

#if defined(__linux__)
std::uint32_t affine_cpus() {
  for (std::size_t most = 1024; most <= (std::size_t{1} << 20); most *= 2) {
    std::vector<std::uint64_t> set(most / 64);
    if (sched_getaffinity(0, most / 8, reinterpret_cast<cpu_set_t*>(set.data())) == 0) {
      return static_cast<std::uint32_t>(CPU_COUNT_S(most / 8, reinterpret_cast<const cpu_set_t*>(set.data())));
    }
  }
  return std::thread::hardware_concurrency();
}
#else
std::uint32_t affine_cpus() { return std::thread::hardware_concurrency(); }
#endif

std::uint64_t physical_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes) : 0;
}

}  // namespace

GroupLimits group_limits(const std::string& root) {
  const std::string mountinfo = contents(root + "/proc/self/mountinfo");
  const std::vector<Mount> mounts = mounts_in(mountinfo);
  GroupLimits limits;
  const std::string groups = contents(root + "/proc/self/cgroup");
  for (const std::string_view line : split(groups, '\n')) {  // "4:cpu,cpuacct:/group", in version 2 "0::/group"
    const std::size_t first = std::min(line.find(':'), line.size());
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    const auto folders = [&](std::string_view controller) {
      std::vector<const Mount*> fitting;
      for (const Mount& mount : mounts) {
        const bool fits =
            controller.empty() ? mount.type == "cgroup2" : mount.type == "cgroup" && names(mount.options, controller);
        if (fits) fitting.push_back(&mount);
      }
      return folders_of(root, fitting, path);
    };
    if (controllers.empty()) {
      for (const std::string& folder : folders("")) {
        const std::string cpu = contents(folder + "/cpu.max");
        const auto parts = split(cpu, ' ');
        if (parts.size() == 2) lower(limits.cpus, cpus_of(parts[0], parts[1]));
        lower(limits.memory_bytes, bytes_of(contents(folder + "/memory.max")));
      }
    }
    if (names(controllers, "cpu")) {
      for (const std::string& folder : folders("cpu")) {
        lower(limits.cpus, cpus_of(contents(folder + "/cpu.cfs_quota_us"), contents(folder + "/cpu.cfs_period_us")));
      }
    }
    if (names(controllers, "memory")) {
      for (const std::string& folder : folders("memory")) {
        lower(limits.memory_bytes, bytes_of(contents(folder + "/memory.limit_in_bytes")));
      }
    }
  }
  return limits;
}

std::uint32_t usable_cpus() {
  const std::uint32_t cpus = std::max(affine_cpus(), 1U);
  return std::min(cpus, group_limits("").cpus.value_or(cpus));
}

std::uint64_t usable_memory_bytes() {
  const std::uint64_t bytes = physical_memory_bytes();
  const std::uint64_t limit = group_limits("").memory_bytes.value_or(bytes);
  return bytes == 0 ? limit : std::min(bytes, limit);
}

}  // namespace rota::core
