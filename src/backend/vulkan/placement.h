#pragma once

#include "rota/vulkan.h"
#include "runtime/backend.h"

namespace rota::vk {

// Where the engine wants a batch: one of the two.
class Placement final : public runtime::Placement {
 public:
  explicit Placement(const vulkan::Order& wanted) noexcept : order(&wanted) {}
  explicit Placement(const vulkan::Recording& wanted) noexcept : recording(&wanted) {}

  // The engine decides when what is recorded runs, if ever.
  bool in_order() const noexcept override { return recording == nullptr; }

  const vulkan::Order* order = nullptr;
  const vulkan::Recording* recording = nullptr;
};

}  // namespace rota::vk
