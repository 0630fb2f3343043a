#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rota/device.h"
#include "rota/kv_spec.h"
#include "runtime/command.h"

// One layer of a model, as a program records it: rope of queries and keys, store of keys and values, attend.

namespace rota::test {

struct LayerCase {
  std::string label;
  KvCodec codec;  // of sealed pages, or of all keys and values
  std::uint32_t key_dim = 128, value_dim = 128;
  std::uint64_t kv_heads = 8, group = 4;
  std::uint64_t sequences = 1, query_tokens = 1;  // of each
  std::uint64_t sealed_pages = 127;               // of 128 tokens
  std::uint64_t tail = 244;                       // dense keys
  std::uint64_t sinks = 4;                        // dense as well, of the first page
};

enum class LayerOp : std::uint8_t { rope, store, attend };

// A command, and what its arguments say about the work.
struct LayerLaunch {
  LayerOp op;
  const runtime::Kernel* kernel;
  runtime::Constants constants;
  bool barrier_before;
  std::string name;                       // of the kernel, and which keys it reads
  std::uint64_t workgroups;               // also those that run in turns
  std::vector<std::uint64_t> split_keys;  // of attend_split: keys of each split, for one KV head
  std::uint64_t distinct_keys = 0;        // which query tiles read together
  std::uint64_t most_splits = 0;          // of attend_merge: partial results of one vector
  std::uint32_t value_dim = 0;
  std::uint64_t partial_bytes = 0;  // that it reads
};

// The second of three layers: what it waits for is there.
std::vector<LayerLaunch> record_layer(Device& device, const LayerCase& what);

}  // namespace rota::test
