#pragma once

#include <memory>

#include "runtime/command.h"

namespace rota::test {

// For kernels that a test calls itself, one at a time.
inline runtime::WorkerScratch* worker_scratch() {
  static const auto scratch = std::make_unique_for_overwrite<runtime::WorkerScratch>();
  return scratch.get();
}

}  // namespace rota::test
