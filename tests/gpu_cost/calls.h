#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rota/device.h"
#include "rota/encoder.h"

namespace rota::test {

enum class Spills { forbidden, allowed };

// A call as a program makes it: the op chooses kernels and constants, and each new pair of them is a row of the table.
struct Call {
  std::string label;
  std::function<void(Device&, Encoder&)> record;
  Spills spills = Spills::forbidden;
};

std::vector<Call> calls();

}  // namespace rota::test
