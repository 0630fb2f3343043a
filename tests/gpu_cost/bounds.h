#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_cost/table.h"

namespace rota::test {

// What a figure must not exceed, whatever the tables of docs/gpu.md accept.
struct Bound {
  std::string_view rows;      // each row whose name begins with it
  std::string_view and_with;  // and contains this
  std::string_view column;
  double most;
  std::string_view meaning;
};

inline constexpr std::string_view kWaits = "waits";

inline constexpr std::array kBounds{
    Bound{"attend_split (f16, ", "D=128", kWaits, 16, "dense keys and values come in batches"},
    Bound{"attend_split (turbo:", "D=128", kWaits, 12, "sealed units come in batches"},
    Bound{"attend_merge (", "", kWaits, 24, "partial results are loaded together"},
    Bound{"decode (", "all", "RX 7900 XTX", 47, "wanted are 35: docs/gpu.md tells what is missing"},
    Bound{"decode (", "all", "M4 Max", 85, "wanted are 60: docs/gpu.md tells what is missing"},
};

// A sentence for each figure beyond its bound, and for each bound whose column a table has, but no row.
std::vector<std::string> broken_bounds(const std::vector<Table>& tables);

}  // namespace rota::test
