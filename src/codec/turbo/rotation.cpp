#include "codec/turbo/rotation.h"

#include <array>
#include <cstring>

#define ROTA_SIMD_FILE "codec/turbo/rotation_f32_simd.h"
#include "core/for_each_isa.h"

namespace rota::codec {

using HadamardF32 = void (*)(float*, std::uint64_t, std::uint64_t) noexcept;
constexpr std::array<HadamardF32, core::kIsas.size()> kHadamardByIsa{ROTA_BY_ISA(hadamard_f32)};

Rotation::Rotation(ops::RotationShape shape, const std::uint32_t* table, core::Isa isa) noexcept
    : block_(std::uint64_t{1} << shape.k),
      dim_(shape.m * block_),
      m_(shape.m),
      hadamard_scale_(ops::hadamard_factor(shape.k)),
      table_(table),
      hadamard_(kHadamardByIsa[static_cast<std::size_t>(isa)]) {}

void Rotation::rotate(float* values) const noexcept {
  negate(values);
  transform(values);
}

void Rotation::rotate_back(float* values) const noexcept {
  transform(values);
  negate(values);
}

void Rotation::negate(float* values) const noexcept {
  for (std::uint64_t i = 0; i < dim_; ++i) {
    if ((table_[ops::kSigns + i / 32] >> (i % 32) & 1U) != 0) values[i] = -values[i];
  }
}

// Hadamard of each block of 2^k numbers, then Hartley across the m blocks.
void Rotation::transform(float* values) const noexcept {
  hadamard_(values, dim_, block_);
  if (m_ == 1) {
    for (std::uint64_t i = 0; i < dim_; ++i) values[i] *= hadamard_scale_;
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
