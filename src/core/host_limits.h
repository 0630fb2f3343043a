#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rota::core {

// What the control groups of this process, and all that they lie in, leave it of the machine.
struct GroupLimits {
  std::optional<std::uint32_t> cpus{};  // a share of one counts as one
  std::optional<std::uint64_t> memory_bytes{};
};

// From the files below `root`, "" for this machine's own: proc/self/cgroup, proc/self/mountinfo, and what they lead to.
// What is missing or makes no sense limits nothing.
GroupLimits group_limits(const std::string& root);

// CPUs that this process may run on, no more than its quota; at least 1.
std::uint32_t usable_cpus();

// The machine's memory, no more than the limit of this process; 0 where nobody knows.
std::uint64_t usable_memory_bytes();

}  // namespace rota::core
