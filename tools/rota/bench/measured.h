#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/fields.h"

// From samples to rows.

namespace rota::tool {

// `seconds` are of one call, or of one for each layer of a model, in each round.
struct Measured {
  BenchRow row;  // but for what follows from the samples
  std::size_t device = 0;
  std::vector<double> seconds{};
  std::uint64_t bytes = 0;
};

// How fast a device reads, in the same rounds.
struct MeasuredRead {
  std::vector<double> seconds;
  std::uint64_t bytes;
};

// Those of all layers of a model: for each that differs in more than its layers, the sum of each round, since its
// samples met the same machine.
std::vector<Measured> sums_of_layers(std::span<const Measured> layers);

// One row for each. `reads` are by device.
std::vector<BenchRow> rows_of(std::span<const Measured> all, std::span<const MeasuredRead> reads);

inline constexpr double kNoisy = 0.1;  // spread: half of the samples lie within so much of the median

}  // namespace rota::tool
