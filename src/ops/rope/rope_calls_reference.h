#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "harness/on_device.h"
#include "ops/rope/rope_reference.h"

// For tests of every device: a call of `rope`, held against its definition.

namespace rota::test {

class RopeOnDevice : public OnDevice {
 protected:
  static constexpr std::int64_t kFar = 1'048'576;
  static constexpr std::int64_t kLast = 2'147'483'647;

  // Rotates, and holds the result against the definition. Returns the worst error as a part of its bound.
  double expect_rotated(TensorUnderTest& tensor, const Rotary& rotary, const std::vector<std::int64_t>& positions) {
    const Status status = run_rope(device, {.tensors = {&tensor.tensor, 1}, .positions = positions, .rotary = rotary});
    EXPECT_OK(status);
    const double worst = tensor.worst_error(rotary, positions);
    EXPECT_LE(worst, 1);
    return worst;
  }

  std::vector<std::int64_t> some_positions(std::uint64_t count) {
    std::vector<std::int64_t> positions(count);
    const std::vector<std::int64_t> telling{0, 1, 4095, 131071, kFar - 1, kFar, kLast - 1, kLast};
    for (std::int64_t& position : positions) {
      position = random() % 2 == 0 ? telling[random() % telling.size()] : static_cast<std::int64_t>(random() % 100000);
    }
    return positions;
  }

  std::mt19937_64 random{20261115};
};

}  // namespace rota::test
