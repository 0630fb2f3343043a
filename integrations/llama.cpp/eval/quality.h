#pragma once

#include <cstddef>
#include <vector>

#include "engine.h"
#include "options.h"

namespace rota::eval {

// What one cache does to predictions. Divergences are from those with the base, in nats.
struct Quality {
  std::size_t positions = 0;
  double perplexity = 0;
  double kld_mean = 0, kld_standard_error = 0, kld_median = 0, kld_p99 = 0, kld_max = 0;
  double top1 = 0;  // share of positions with the same likeliest token
};

// One for each of the options' caches.
std::vector<Quality> measure_quality(Engine& engine, const Options& options);

}  // namespace rota::eval
