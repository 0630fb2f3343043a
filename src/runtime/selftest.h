#pragma once

#include <span>
#include <string_view>

#include "rota/device.h"

namespace rota::runtime {

// Runs one op on both devices and compares; the error tells where they differ.
struct SelfTest {
  std::string_view op;
  Status (*run)(Device& subject, Device& reference);
};

// Every op's, in a table that the build makes from the folders of src/ops.
std::span<const SelfTest> self_tests() noexcept;

}  // namespace rota::runtime
