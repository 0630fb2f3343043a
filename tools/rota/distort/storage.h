#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distort/captures.h"
#include "distort/trial.h"
#include "rota/device.h"

// What codecs make of keys and values, by the library's own ops.

namespace rota::tool {

// Sums over what one way did to keys, or to values.
struct StorageSums {
  std::uint64_t values = 0;
  double error = 0, square = 0;
  double coded_square = 0;  // of what the codec codes: keys less their page's mean, where that is kept beside them
  double largest_error = 0;

  StorageSums& operator+=(const StorageSums& other);
};

// One head's, [token][dim]; tokens of the last partial page are as they were.
struct Restored {
  std::vector<float> keys, values;
};

// All heads at once. Fails with a message that names a capture.
std::vector<Restored> restore(Device& device, const Setting& setting, const Trial& trial,
                              std::span<const Capture> captures);

struct Pair {
  std::span<const float> exact, restored;
};

// Over all that is in the trial's whole pages, and no sink.
StorageSums storage_sums(const Setting& setting, const Trial& trial, KvSide side, const Pair& numbers);

}  // namespace rota::tool
