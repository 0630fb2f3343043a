#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu_cost/layer.h"
#include "gpu_cost/models.h"

// What a layer takes on GPUs that are described, by the formula that docs/gpu.md states. Nothing of it is measured.

namespace rota::test {

struct Gpu {
  std::string_view name;
  double cores, simds, lanes;  // SIMDs of a core, lanes of a SIMD: f32 instructions of a clock
  double clock_ghz, memory_gb_per_s;
  double memory_ns, l2_ns, near_ns;     // until a load arrives; near: from a core's own cache
  double shared_bytes_per_clock;        // of a core
  double register_bytes, shared_bytes;  // of a SIMD, of a core: how many waves are in flight
  double most_waves;                    // of 64 lanes, of a SIMD
  double launch_us, barrier_us;
};

// Published peaks. Latencies, launches and barriers are assumptions.
inline constexpr std::array kGpus{
    Gpu{"RX 7900 XTX", 96, 2, 32, 2.3, 960, 300, 110, 30, 128, 192 << 10, 64 << 10, 8, 1, 2},
    Gpu{"RTX 4090", 128, 4, 32, 2.5, 1008, 290, 120, 30, 128, 64 << 10, 100 << 10, 6, 1, 2},
    Gpu{"M4 Max", 40, 4, 32, 1.6, 546, 350, 130, 40, 128, 52 << 10, 60 << 10, 6, 1, 2},
    Gpu{"Radeon 780M", 12, 2, 32, 2.7, 90, 350, 120, 30, 128, 128 << 10, 64 << 10, 8, 1, 2},
};

// Of one launch, or of several that run at the same time.
struct LaunchTime {
  double chain_us = 0;                                 // until its last workgroup ends, were it alone on the GPU
  double memory_us = 0, vector_us = 0, shared_us = 0;  // were it bound by this alone

  double us() const { return std::max({chain_us, memory_us, vector_us, shared_us}); }
};

struct LayerTime {
  std::vector<LaunchTime> launches;
  double us = 0, attend_us = 0;
};

LayerTime estimate(Models& models, const Gpu& gpu, const std::vector<LayerLaunch>& layer);

}  // namespace rota::test
