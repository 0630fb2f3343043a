#pragma once

#include <nanobind/nanobind.h>
#include <rota/rota.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rota::python {

// The limits of a cache, as keywords.
struct CacheLimits {
  std::optional<std::uint64_t> max_tokens, max_bytes;
  bool at_once;
  std::uint32_t max_sequences;
  std::uint64_t max_step_tokens;
  std::string_view layer_order;
  std::optional<std::uint64_t> seal_within;
};

KvCacheSpec spec_of(std::vector<KvGroup> groups, const CacheLimits& limits);

// The bytes of a cache at most, by kind of page.
nanobind::dict to_dict(const KvMemory& memory);

}  // namespace rota::python
