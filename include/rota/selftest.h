#pragma once

#include <string>
#include <vector>

#include "rota/device.h"
#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// One op, with one codec or element type.
struct SelfTestResult {
  std::string op;
  std::string what;    // "turbo4 keys of 48 dims"
  double error = 0;    // found, as the op measures it: relative, absolute, or the share of bytes that differ
  double bound = 0;    // the largest that is right; 0 where every bit must be
  Status status = {};  // why it is not right
};

// Runs every op with every codec on `subject`, and compares with the definition or with `reference`.
ROTA_API Result<std::vector<SelfTestResult>> self_test(Device& subject, Device& reference);

}  // namespace rota::inline ROTA_ABI
