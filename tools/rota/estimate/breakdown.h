#pragma once

#include <cstdint>
#include <string>

#include "rota/kv_spec.h"

// Why a cache of "4 bits" takes more.

namespace rota::tool {

// What the bytes of a cache are there for. They add up to KvMemory::bytes().
struct Breakdown {
  std::uint64_t own = 0;       // the requested values, as the codec has them, with its scales and means
  std::uint64_t unfilled = 0;  // the rest of pages that are not full, and counters
  std::uint64_t dense = 0;     // tail, sinks and the page that fills, where others are sealed
  std::uint64_t steps = 0;     // room for the tokens of steps
  double codec_bits = 0;       // of a value, where nothing but `own` were needed

  std::uint64_t bytes() const noexcept { return own + unfilled + dense + steps; }
};

// For a cache with limits in tokens; `tokens` of each sequence are asked for. Throws BadResult where estimate()
// refuses.
Breakdown breakdown_of(const KvCacheSpec& spec, std::uint64_t tokens);

// Numbers that a group is there for: those of its window, where it has one.
std::uint64_t values_of(const KvGroup& group, std::uint64_t tokens);

// "turbo4 at 8192: 4.73 bits/value = 4.16 in pages + ..."; nothing where that is within a tenth of what the codec
// takes.
std::string breakdown_text(const Breakdown& breakdown, const KvCacheSpec& spec, std::uint64_t tokens);

}  // namespace rota::tool
