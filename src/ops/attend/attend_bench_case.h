#pragma once

#include <cstdint>
#include <optional>

#include "bench_case.h"
#include "rota/kv_spec.h"

namespace rota::bench {

// Queries of sequences that are alike, over keys and values as a cache keeps them.
struct AttendCase {
  KvCodec k = DType::f16, v = DType::f16;
  std::uint64_t kv_heads = 8, group = 4, head_dim = 128, value_dim = 128;
  std::uint64_t keys = 0;  // of each sequence
  std::uint64_t rows = 1, sequences = 1;
  std::uint64_t tail = 128;  // newest tokens that are dense where others are sealed
  std::optional<std::uint64_t> window = {};
  bool scattered = false;  // pages lie in random order
  std::uint64_t rotated_bytes = 0;
};

// Bytes are those of keys and values.
Work attend_work(Place& place, const AttendCase& what);

}  // namespace rota::bench
