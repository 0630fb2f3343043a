#pragma once

#include <cstdint>
#include <vector>

#include "bench_case.h"
#include "rota/ops.h"

namespace rota::bench {

// A prompt's queries and keys, or one token's.
struct RopeCase {
  DType dtype = DType::f16;
  std::uint64_t tokens = 1;
  std::vector<std::uint64_t> heads;  // of each tensor
  std::uint64_t head_dim = 128;
  Rotary rotary;
  std::int64_t first_position = 0;
  bool in_place = true;  // else to memory of its own
  bool normed = false;
  std::uint64_t rotated_bytes = 0;

  std::uint64_t tensor_bytes() const;  // of all tensors, once
  std::uint64_t copy_bytes() const;    // of the memory of one call
};

Work rope_work(Place& place, const RopeCase& what);

}  // namespace rota::bench
