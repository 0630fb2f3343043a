#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "cache/kv_cache_steps_reference.h"
#include "rota/rota.h"

namespace rota::cache::reference {

struct RandomSteps {
  std::uint64_t steps, first_seed, attend_every;
};

// Random steps, in caches of all kinds.
inline void run_random_steps(Device& device, const RandomSteps& run) {
  constexpr std::uint64_t kStepsOfACache = 250;
  std::uint64_t done = 0;
  for (std::uint64_t seed = run.first_seed; done < run.steps; ++seed) {
    Machine machine(device, seed, run.attend_every);
    while (machine.steps() < kStepsOfACache && done < run.steps) {
      machine.step();
      ++done;
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << "\n" << machine.trace();
    }
    machine.finish();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace rota::cache::reference
