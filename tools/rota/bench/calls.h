#pragma once

#include <vector>

#include "bench/cases.h"
#include "bench/session.h"
#include "cli/command.h"
#include "cli/table.h"

// `rota bench call`: what a call costs besides its arithmetic.

namespace rota::tool {

struct CallCases {
  std::vector<Device> devices;
  std::vector<BenchShape> shapes;
};

// Each shape on each device, submitted alone and with the other layers of a model; beside it, on a CPU, as many empty
// loops of as many threads.
Report bench_calls(const CallCases& cases, Session& session, const Invocation& invocation);

}  // namespace rota::tool
