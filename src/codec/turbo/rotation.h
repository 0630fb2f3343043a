#pragma once

#include <cstdint>

#include "codec/turbo/turbo.params.h"
#include "core/isa.h"

namespace rota::codec {

// The codec's rotation of f32 vectors: signs, then a transform that is its own inverse. Sealed keys were rotated, so
// queries are; sums of sealed values are rotated back. Pages themselves are made with integers: see pack.h.
class Rotation {
 public:
  // By a format's table. Vectors have m * 2^k numbers and are aligned to 64 bytes.
  Rotation(ops::RotationShape shape, const std::uint32_t* table, core::Isa isa = core::best_isa()) noexcept;

  void rotate(float* values) const noexcept;
  void rotate_back(float* values) const noexcept;

 private:
  void negate(float* values) const noexcept;
  void transform(float* values) const noexcept;

  std::uint64_t block_, dim_, m_;
  float hadamard_scale_;
  const std::uint32_t* table_;
  void (*hadamard_)(float* values, std::uint64_t dim, std::uint64_t block) noexcept;
};

}  // namespace rota::codec
