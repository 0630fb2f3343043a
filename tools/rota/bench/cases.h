#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/options.h"
#include "rota/device.h"
#include "rota/kv_spec.h"

// What `rota bench` times: calls of one op on memory that is filled as a cache's would be.

namespace rota::tool {

struct BenchShape {
  std::string op;  // attend, rope, seal or store
  KvCodec k = DType::f16, v = DType::f16;
  std::uint64_t kv_heads = 8, group = 4, head_dim = 128, value_dim = 128;
  std::uint64_t keys = 0;  // of each sequence; of other ops than attend, tokens
  std::uint64_t rows = 1, sequences = 1;
  std::uint64_t tail = 128;  // newest tokens that are dense where others are sealed
  std::optional<std::uint64_t> window = {};
  bool scattered = false;           // pages lie in random order
  std::uint64_t rotated_bytes = 0;  // calls go round through at least so much memory
};

struct BenchWork {
  std::uint64_t bytes = 0;  // that one call must read and write; of attend, keys and values
  std::function<void(std::uint64_t calls)> run;
};

// A device, and how much of its memory may still be taken.
struct BenchDevice {
  Device device;
  std::uint64_t& memory_left;

  // Fails where there is not so much.
  void take(std::uint64_t bytes);
};

BenchWork make_work(BenchDevice& bench, const BenchShape& shape);

// Reads memory as fast as the device can.
BenchWork make_read(BenchDevice& bench);

}  // namespace rota::tool
