#pragma once

#include <string>

#include "gpu_cost/table.h"
#include "rota/device.h"
#include "runtime/command.h"

namespace rota::test {

// A GPU that is not here: its driver compiles kernels for it, calls are recorded for it, and nothing runs.
// Members throw where the driver fails.
class Card {
 public:
  Card();

  Device& device() noexcept { return device_; }
  std::string chip() const;  // as the driver names it
  const std::string& driver() const noexcept { return device_.info().driver; }

  Cost cost_of(const runtime::Kernel& kernel, const runtime::Constants& constants);

 private:
  Device device_;
};

}  // namespace rota::test
