#pragma once

#include <string>

namespace rota::tool {

// The JSON schema of what `rota bench -o json` prints: docs/bench.schema.json.
std::string bench_schema();

}  // namespace rota::tool
