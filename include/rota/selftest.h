#pragma once

#include <string>
#include <vector>

#include "rota/device.h"

namespace rota {

struct SelfTestResult {
  std::string op;
  Status status = {};
};

// Runs every op on `subject` and compares with `reference`, as exactly as the op promises.
ROTA_API Result<std::vector<SelfTestResult>> self_test(Device& subject, Device& reference);

}  // namespace rota
