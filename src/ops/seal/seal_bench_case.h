#pragma once

#include <cstdint>
#include <vector>

#include "bench_case.h"
#include "rota/codec.h"

namespace rota::bench {

// A prompt's pages in bulk, of each format: keys, values or both.
struct SealCase {
  std::vector<PageFormat> formats;
  std::uint64_t pages = 1, heads = 8;
  DType dtype = DType::f16;  // of what is sealed
  bool head_major = true;    // as caches store pages; else as a prompt's activations lie
  std::uint64_t rotated_bytes = 0;
};

Work seal_work(Place& place, const SealCase& what);

// Restores what was sealed before.
Work unseal_work(Place& place, const SealCase& what);

}  // namespace rota::bench
