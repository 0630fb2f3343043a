#pragma once

#include <cstdint>

#include "codec/turbo/turbo.params.h"
#include "core/isa.h"

namespace rota::codec {

// What an instruction set does: of all numbers of a vector.
struct RotationSimd {
  void (*hadamard)(float* values, std::uint64_t dim, std::uint64_t block) noexcept;
  void (*negate)(float* values, std::uint64_t dim, const std::uint32_t* signs) noexcept;
  void (*scale)(float* values, std::uint64_t dim, float factor) noexcept;
};

// The codec's rotation of f32 vectors: signs, then a transform that is its own inverse. Sealed keys were rotated, so
// queries are; sums of sealed values are rotated back. Pages themselves are made with integers: see pack.h.
class Rotation {
 public:
  // By a format's table. Vectors have m * 2^k numbers and are aligned to 64 bytes.
  Rotation(ops::RotationShape shape, const std::uint32_t* table, core::Isa isa = core::best_isa()) noexcept;

  void rotate(float* values) const noexcept;
  void rotate_back(float* values) const noexcept;

 private:
  void transform(float* values) const noexcept;

  std::uint64_t block_, dim_, m_;
  float hadamard_scale_;
  const std::uint32_t* table_;
  const RotationSimd& simd_;
};

}  // namespace rota::codec
