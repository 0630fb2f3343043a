#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine.h"
#include "options.h"

namespace rota::eval {

// Of one token, in ms.
struct Timing {
  double median = 0, p10 = 0, p90 = 0;
};

// By depth.
using Timings = std::map<std::uint32_t, Timing>;

// One for each of the options' caches.
std::vector<Timings> measure_speed(Engine& engine, const Options& options);

// Steps from one depth to another, in ms.
struct Pause {
  double median = 0, p99 = 0, longest = 0;
  std::uint32_t longest_at = 0;  // depth
};
std::vector<Pause> measure_pauses(Engine& engine, const Options& options);

// The context in which speed and memory are measured.
Sizes speed_sizes(const Options& options);

// Of each of the options' caches in such a context, as llama.cpp logs it.
struct Memory {
  std::uint32_t context = 0;  // tokens
  std::int64_t bytes = 0;
  bool rotated = false;  // llama.cpp rotates keys and values before it quantizes them
};
std::vector<Memory> measure_memory(Engine& engine, const Options& options);

}  // namespace rota::eval
