#pragma once

#include <cstdint>
#include <vector>

#include "bench_case.h"

namespace rota::bench {

// New tokens into head-major slots: each side, keys or values, from its activations.
struct StoreCase {
  struct Side {
    DType from, to;
    std::uint64_t dim;
  };
  std::vector<Side> sides;
  std::uint64_t heads = 8, tokens = 1;
  std::uint64_t slots = 0;     // of the cache; 0: as many as there are tokens
  std::uint64_t position = 0;  // of the first token
  bool counts = false;         // what is not finite
  std::uint64_t rotated_bytes = 0;
};

Work store_work(Place& place, const StoreCase& what);

}  // namespace rota::bench
