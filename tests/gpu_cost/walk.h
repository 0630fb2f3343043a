#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu_cost/machine_code.h"

// One wave's way through a kernel, and how long it waits for memory on it.

namespace rota::test {

// How often a loop's body is gone through. Of blocks with a condition that load what `thinned` names, only this share
// is: a plane whose units last for several trips.
struct Trips {
  std::uint64_t count = 1;
  std::uint32_t thinned_binding = ~0U;
  double thinned_share = 1;
};

inline constexpr std::size_t kMostBindings = 8;

struct Walked {
  double waited = 0;                // in what a load's latency is counted in
  std::size_t loads_in_flight = 0;  // the most vector loads at a time
  double vector_alu = 0, scalar_alu = 0, shared = 0, shared_bytes = 0, products = 0;
  std::array<double, kMostBindings> bytes{};  // vector loads of a lane, by binding

  friend Walked operator-(Walked from, const Walked& what);  // loads in flight: of `from`
  friend Walked operator+(Walked to, const Walked& what);
  Walked scaled(double by) const;
};

// Of a load; 0: nobody waits for it.
using LatencyOf = std::function<double(const Instruction&)>;

// Goes through the blocks as they stand in the text, each loop's body as often as its trips say. Of a condition that
// all lanes share the longer side counts, of others both. A load arrives its latency after it was issued, instructions
// take no time, and a wait lasts until what it waits for has arrived: with latencies of 1, `waited` is the number of
// loads that follow from each other.
Walked walk(const MachineCode& code, const std::vector<Trips>& trips, const LatencyOf& latency_of);

// 1 for each load of a buffer, or also for each load of descriptors and params.
enum class Counted : std::uint8_t { buffers, everything };
LatencyOf unit_latency(Counted counted);

}  // namespace rota::test
