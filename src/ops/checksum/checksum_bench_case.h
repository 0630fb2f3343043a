#pragma once

#include <cstdint>

#include "bench_case.h"

namespace rota::bench {

// Reads memory as fast as the device can: the limit that all other ops are held against.
struct ChecksumCase {
  std::uint64_t call_bytes;
  std::uint64_t copies = 1;  // more of them than caches hold are read from memory
};

Work checksum_work(Place& place, const ChecksumCase& what);

}  // namespace rota::bench
