#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rota/export.h"

namespace rota::inline ROTA_ABI {

// An element type. Kernels are specialized by the enumerator's number, so the order is fixed.
enum class DType : std::uint8_t { f32, f16, bf16 };

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::uint32_t bytes;  // per element
};

// Every element type, in the order of the enumerators.
inline constexpr std::array kDTypes{
    DTypeInfo{DType::f32, "f32", 4},
    DTypeInfo{DType::f16, "f16", 2},
    DTypeInfo{DType::bf16, "bf16", 2},
};

// Whether the number is one of the enumerators.
constexpr bool is_known(DType dtype) noexcept { return static_cast<std::size_t>(dtype) < kDTypes.size(); }

// The type's entry of kDTypes. Precondition: is_known(dtype).
constexpr const DTypeInfo& info(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)]; }

// The conversions below define those of every device, to the bit. They round to nearest, ties to even. Overflow gives
// infinity. NaN stays NaN, with its sign and its top payload bits; it becomes quiet, except from bf16 to f32.

namespace detail {
// `a < b ? then : otherwise` without a branch, so that compilers vectorize it. Precondition: a, b < 2^31.
constexpr std::uint32_t if_less(std::uint32_t a, std::uint32_t b, std::uint32_t then,
                                std::uint32_t otherwise) noexcept {
  const auto mask = static_cast<std::uint32_t>(
      -static_cast<std::int32_t>(static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b)));
  return (then & mask) | (otherwise & ~mask);
}
}  // namespace detail

// The bits of the nearest f16.
constexpr std::uint16_t f16_from_f32(float value) noexcept {
  constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14
  constexpr std::uint32_t kOverflow = 143U << 23;        // 2^16
  constexpr std::uint32_t kInfinity = 255U << 23;
  constexpr std::uint32_t kAligner = 126U
                                     << 23;  // 0.5: its last mantissa bit weighs as much as that of an f16 denormal
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;

  const std::uint32_t small = detail::if_less(magnitude, kSmallestNormal, magnitude, 0);
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) + 0.5F) - kAligner;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x1ffU);

  std::uint32_t half = detail::if_less(magnitude, kSmallestNormal, denormal, normal);
  half = detail::if_less(magnitude, kOverflow, half, 0x7c00U);
  half = detail::if_less(kInfinity, magnitude, nan, half);
  return static_cast<std::uint16_t>(sign | half);
}

// The f16 with these bits; exact.
constexpr float f32_from_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  const auto denormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  const std::uint32_t normal = (magnitude << 13) + (112U << 23);
  const std::uint32_t special = normal + (112U << 23);  // the largest exponent, the same mantissa
  const std::uint32_t quiet = detail::if_less(0x7c00U, magnitude, 0x400000U, 0);

  std::uint32_t bits = detail::if_less(magnitude, 0x400U, denormal, normal);
  bits = detail::if_less(magnitude, 0x7c00U, bits, special | quiet);
  return std::bit_cast<float>(sign | bits);
}

// The bits of the nearest bf16.
constexpr std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>(detail::if_less(255U << 23, bits & 0x7fffffffU, quiet, rounded));
}

// The bf16 with these bits; exact.
constexpr float f32_from_bf16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

}  // namespace rota::inline ROTA_ABI
