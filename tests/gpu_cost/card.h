#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "rota/device.h"
#include "runtime/command.h"

namespace rota::test {

struct Figure {
  std::string_view statistic;  // the driver's name for it
  std::string_view heading;
  bool is_spill = false;  // memory traffic that the kernel's text does not show
};

inline constexpr std::array kFigures{Figure{"VGPRs", "VGPRs"},
                                     Figure{"SGPRs", "SGPRs"},
                                     Figure{"Spilled VGPRs", "spilled VGPRs", true},
                                     Figure{"Spilled SGPRs", "spilled SGPRs", true},
                                     Figure{"Scratch size", "scratch bytes", true},
                                     Figure{"LDS size", "LDS bytes"},
                                     Figure{"Instructions", "instructions"},
                                     Figure{"Code size", "code bytes"},
                                     Figure{"Subgroups per SIMD", "waves per SIMD"}};

// A kernel as the driver compiled it.
struct Compiled {
  std::array<std::uint64_t, kFigures.size()> cost{};
  std::string assembly;

  std::uint64_t vector_registers() const noexcept { return cost[0]; }
  std::uint64_t shared_bytes() const noexcept { return cost[5]; }
};

// A GPU that is not here: its driver compiles kernels for it, calls are recorded for it, and nothing runs.
// Members throw where the driver fails.
class Card {
 public:
  Card();

  Device& device() noexcept { return device_; }
  std::string chip() const;  // as the driver names it
  const std::string& driver() const noexcept { return device_.info().driver; }

  // Compiles it once.
  const Compiled& compiled(const runtime::Kernel& kernel, const runtime::Constants& constants);

 private:
  std::map<std::pair<const runtime::Kernel*, runtime::Constants>, Compiled> compiled_;
  Device device_;
};

}  // namespace rota::test
