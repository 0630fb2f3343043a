#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rota {

// Kernels see the enumerator's number as a constant: the order is part of the kernels.
enum class DType : std::uint8_t { f32, f16, bf16 };

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::uint32_t bytes;
};

// The only list of element types.
inline constexpr std::array kDTypes{
    DTypeInfo{DType::f32, "f32", 4},
    DTypeInfo{DType::f16, "f16", 2},
    DTypeInfo{DType::bf16, "bf16", 2},
};

constexpr bool is_known(DType dtype) noexcept { return static_cast<std::size_t>(dtype) < kDTypes.size(); }

// Precondition: is_known(dtype).
constexpr const DTypeInfo& info(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)]; }

// Conversions round to nearest, ties to even; overflow goes to infinity; NaN stays NaN with its sign
// and top payload bits, made quiet but for bf16 to f32. Every device gives exactly these bits.

constexpr std::uint16_t f16_from_f32(float value) noexcept {
  constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14
  constexpr std::uint32_t kOverflow = 143U << 23;        // 2^16
  constexpr std::uint32_t kInfinity = 255U << 23;
  constexpr std::uint32_t kAligner = 126U << 23;  // 0.5: its last mantissa bit is f16's last denormal bit
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;

  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x1ffU);
  const float aligned = std::bit_cast<float>(magnitude < kSmallestNormal ? magnitude : 0U) + 0.5F;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(aligned) - kAligner;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;

  std::uint32_t half = normal;
  half = magnitude < kSmallestNormal ? denormal : half;
  half = magnitude >= kOverflow ? 0x7c00U : half;
  half = magnitude > kInfinity ? nan : half;
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float f32_from_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t normal = (magnitude << 13) + (112U << 23);
  const auto denormal = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  const std::uint32_t special = 0x7f800000U | ((magnitude & 0x3ffU) << 13) | (magnitude > 0x7c00U ? 0x400000U : 0U);

  std::uint32_t bits = normal;
  bits = magnitude < 0x400U ? denormal : bits;
  bits = magnitude >= 0x7c00U ? special : bits;
  return std::bit_cast<float>(sign | bits);
}

constexpr std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

constexpr float f32_from_bf16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

}  // namespace rota
