#pragma once

#include <string>
#include <vector>

#include "rota/device.h"
#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// The result for one op with one codec or element type.
struct SelfTestResult {
  std::string op;
  std::string what;    // such as "turbo4 keys of 48 dims"
  double error = 0;    // relative, absolute, or the share of bytes that differ, depending on the op
  double bound = 0;    // the largest error that passes; 0 if every bit must be right
  Status status = {};  // an error if the test failed: why
};

// Runs every op with every codec on `subject`. Compares its results with the op's definition or with those of
// `reference`.
ROTA_API Result<std::vector<SelfTestResult>> self_test(Device& subject, Device& reference);

}  // namespace rota::inline ROTA_ABI
