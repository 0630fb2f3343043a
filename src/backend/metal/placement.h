#pragma once

#include "rota/metal.h"
#include "runtime/backend.h"

namespace rota::mtl {

// Where the engine wants a batch: one of the two.
class Placement final : public runtime::Placement {
 public:
  explicit Placement(const metal::Order& wanted) noexcept : order(&wanted) {}
  explicit Placement(const metal::Recording& wanted) noexcept : recording(&wanted) {}

  // The engine decides when what is recorded runs, if ever.
  bool in_order() const noexcept override { return recording == nullptr; }

  const metal::Order* order = nullptr;
  const metal::Recording* recording = nullptr;
};

}  // namespace rota::mtl
