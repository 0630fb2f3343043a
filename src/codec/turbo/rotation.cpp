#include "codec/turbo/rotation.h"

#include <array>
#include <bit>

#define ROTA_SIMD_FILE "codec/turbo/rotation_f32_simd.h"
#include "core/for_each_isa.h"

namespace rota::codec {

constexpr std::array<RotationSimd, core::kIsas.size()> kSimdByIsa{ROTA_BY_ISA(kRotationSimd)};

Rotation::Rotation(ops::RotationShape shape, const std::uint32_t* table, core::Isa isa) noexcept
    : block_(std::uint64_t{1} << shape.k),
      dim_(shape.m * block_),
      m_(shape.m),
      hadamard_scale_(ops::hadamard_factor(shape.k)),
      table_(table),
      simd_(kSimdByIsa[static_cast<std::size_t>(isa)]) {}

void Rotation::rotate(float* values) const noexcept {
  simd_.negate(values, dim_, table_ + ops::kSigns);
  transform(values);
}

void Rotation::rotate_back(float* values) const noexcept {
  transform(values);
  simd_.negate(values, dim_, table_ + ops::kSigns);
}

// Hadamard of each block of 2^k numbers, then Hartley across the m blocks.
void Rotation::transform(float* values) const noexcept {
  simd_.hadamard(values, dim_, block_);
  if (m_ == 1) {
    simd_.scale(values, dim_, hadamard_scale_);
    return;
  }
  const auto* const row = reinterpret_cast<const std::int32_t*>(table_ + ops::kHartleyRow);
  for (std::uint64_t column = 0; column < block_; ++column) {
    std::array<float, 16> mixed{};
    for (std::uint64_t a = 0; a < m_; ++a) {
      for (std::uint64_t b = 0; b < m_; ++b) {
        mixed[a] += static_cast<float>(row[a * b % m_]) * ops::kHartleyUnit * values[b * block_ + column];
      }
    }
    for (std::uint64_t a = 0; a < m_; ++a) values[a * block_ + column] = mixed[a] * hadamard_scale_;
  }
}

}  // namespace rota::codec
