#include "core/host_limits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace rota::core {
namespace {

namespace fs = std::filesystem;

// A folder that looks like a machine.
class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "rota_limits_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    root = name;
  }
  ~Machine() { fs::remove_all(root); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Machine& file(const std::string& path, std::string_view text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path, std::ios::binary) << text;
    return *this;
  }
  Machine& groups(std::string_view text) { return file("/proc/self/cgroup", text); }
  Machine& mounts(std::string_view text) { return file("/proc/self/mountinfo", text); }

  std::string root;
};

constexpr std::string_view kVersion2 =
    "22 28 0:20 / /proc rw,nosuid shared:13 - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
constexpr std::string_view kVersion1 =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

#define EXPECT_LIMITS(machine, wanted_cpus, wanted_bytes)                     \
  do {                                                                        \
    const GroupLimits found = group_limits((machine).root);                   \
    EXPECT_EQ(found.cpus, std::optional<std::uint32_t> wanted_cpus);          \
    EXPECT_EQ(found.memory_bytes, std::optional<std::uint64_t> wanted_bytes); \
  } while (false)

TEST(GroupLimits, OfNothingAreNone) {
  const Machine empty;
  EXPECT_LIMITS(empty, {}, {});
}

TEST(GroupLimits, OfVersion2) {
  Machine machine;
  machine.groups("0::/a/b\n").mounts(kVersion2);
  machine.file("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n").file("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  EXPECT_LIMITS(machine, {2}, {1073741824});
}

TEST(GroupLimits, AreTheSmallestOfAllThatAGroupLiesIn) {
  Machine machine;
  machine.groups("0::/a/b/c\n").mounts(kVersion2);
  machine.file("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n").file("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  machine.file("/sys/fs/cgroup/a/b/cpu.max", "300000 100000\n").file("/sys/fs/cgroup/a/b/memory.max", "3000000\n");
  machine.file("/sys/fs/cgroup/a/cpu.max", "50000 100000\n").file("/sys/fs/cgroup/a/memory.max", "4000000\n");
  EXPECT_LIMITS(machine, {1}, {3000000});
  machine.file("/sys/fs/cgroup/memory.max", "2000000");
  EXPECT_LIMITS(machine, {1}, {2000000});
}

TEST(GroupLimits, OfVersion1) {
  Machine machine;
  machine.groups("9:name=systemd:/x\n4:memory:/m\n3:cpuset:/s\n2:cpu,cpuacct:/c/d\n0::/\n").mounts(kVersion1);
  machine.file("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_quota_us", "-1\n");
  machine.file("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_period_us", "100000\n");
  machine.file("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "250000\n");
  machine.file("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  machine.file("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_LIMITS(machine, {3}, {});
  machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5368709120\n");
  EXPECT_LIMITS(machine, {3}, {5368709120});
}

TEST(GroupLimits, OfBothVersionsAtOnce) {
  Machine machine;
  machine.groups("4:memory:/m\n0::/u\n")
      .mounts(std::string(kVersion1) + "40 31 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n");
  machine.file("/sys/fs/cgroup/unified/u/cpu.max", "400000 100000\n");
  machine.file("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "1000000\n");
  EXPECT_LIMITS(machine, {4}, {1000000});
}

// A container that has its own group mounted, and sees the machine's names.
TEST(GroupLimits, CountFromTheGroupThatIsMounted) {
  Machine machine;
  machine.groups("4:memory:/docker/1234/inner\n")
      .mounts("35 31 0:32 /docker/1234 /mem\\040ory rw - cgroup c rw,memory\n");
  machine.file("/mem ory/inner/memory.limit_in_bytes", "3000\n").file("/mem ory/memory.limit_in_bytes", "5000\n");
  EXPECT_LIMITS(machine, {}, {3000});
  machine.groups("4:memory:/docker/12345\n");  // another's: what is mounted is all there is
  EXPECT_LIMITS(machine, {}, {5000});
  machine.groups("4:memory:/docker/1234/../inner\n");
  EXPECT_LIMITS(machine, {}, {5000});
}

TEST(GroupLimits, ThatMakeNoSenseAreNone) {
  for (const std::string_view rubbish :
       {"", "\n", "0\n", "-5\n", "12x\n", "x\n", "99999999999999999999999\n", "1 2 3\n", "max max\n", "100000 0\n",
        "0 100000\n", "1000 -1\n", "\x00\x01\xff", "1e9\n", " 5\n"}) {
    Machine machine;
    machine.groups("0::/\n2:cpu:/\n4:memory:/\n").mounts(std::string(kVersion2) + std::string(kVersion1));
    for (const char* name : {"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max"}) machine.file(name, rubbish);
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", rubbish);
    EXPECT_LIMITS(machine, {}, {});
  }
}

TEST(GroupLimits, OfAnyShareOfACpuAreOneCpu) {
  Machine machine;
  machine.groups("0::/\n").mounts(kVersion2).file("/sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_LIMITS(machine, {1}, {});
  machine.file("/sys/fs/cgroup/cpu.max", "18446744073709551615 1\n");
  EXPECT_LIMITS(machine, {4294967295}, {});
}

RC_GTEST_PROP(GroupLimits, TakeAnyFiles, ()) {
  const auto text = [] {
    const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
        "/", "0::/", "4:memory:/a", ":", "::", "-", " ", "\n", "cgroup", "cgroup2", " - cgroup2 c rw", "/sys", "\\04",
        "\\040", "..", "1 2 3 / /sys rw", "rw,memory", "\\", std::string(5000, '/'), std::string(1, '\0')));
    std::string all;
    for (const std::string& word : words) all += word;
    return all;
  };
  Machine machine;
  machine.groups(text()).mounts(text()).file("/sys/memory.max", "7\n");
  const GroupLimits found = group_limits(machine.root);
  RC_ASSERT(!found.cpus);
  RC_ASSERT(!found.memory_bytes || *found.memory_bytes == 7U);
}

TEST(HostLimits, AreSomething) {
  EXPECT_GE(usable_cpus(), 1U);
  EXPECT_GT(usable_memory_bytes(), 1U << 20);
}

}  // namespace
}  // namespace rota::core
