#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "rota/codec.h"

namespace rota::codec {

// Nothing where the head size is not one of the codec's.
std::optional<ops::RotationShape> rotation_of(std::uint32_t head_dim) noexcept;

// Whether the rotation negates dim `i` before it mixes.
bool is_negated(std::uint32_t seed, KvSide side, std::uint32_t i) noexcept;

// By code. Empty where there is no such width.
std::span<const std::int8_t> levels_of(std::uint32_t bits) noexcept;

// Of the levels, in standard deviations of the values.
double unit_of(std::uint32_t bits) noexcept;

// All of these take formats that check() does not refuse.
ops::PageLayout layout_of(const PageFormat& format) noexcept;
std::array<std::uint32_t, ops::kTableWords> kernel_table(const PageFormat& format) noexcept;

}  // namespace rota::codec
