#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "rota/device.h"
#include "rota/encoder.h"

namespace rota::runtime {

// Records by record(Encoder&), submits and waits.
template <class Record>
Status run_on(Device& device, const Record& record) {
  Encoder encoder = device.encoder();
  record(encoder);
  auto fence = std::move(encoder).submit();
  return fence ? fence->wait() : Status(fence.error());
}

// Runs one op on both devices and compares; the error tells where they differ.
struct SelfTest {
  std::string_view op;
  Status (*run)(Device& subject, Device& reference);
};

// Every op's, in a table that the build makes from the folders of src/ops.
std::span<const SelfTest> self_tests() noexcept;

}  // namespace rota::runtime
