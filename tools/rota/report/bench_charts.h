#pragma once

#include <cstddef>

#include "report/bench_view.h"
#include "report/page.h"

namespace rota::tool {

// Time, how close to the memory's speed, and speed relative to f16. Adds to `count` how many charts there are.
Section bench_charts(const BenchView& view, std::size_t& count);

}  // namespace rota::tool
