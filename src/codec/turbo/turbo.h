#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "codec/codecs.h"
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

// What codec/codecs.h asks of every codec.
Status check(const Turbo& codec, const PageFormat& format);
ops::RotationShape rotation_of(const Turbo& codec, std::uint32_t head_dim) noexcept;
std::uint32_t scale_rule_of(const Turbo& codec) noexcept;
Table table_of(const Turbo& codec, const PageFormat& format) noexcept;
double normal_error_of(const Turbo& codec) noexcept;
Description description_of(const Turbo& codec) noexcept;
void read(const Description& from, Turbo& codec) noexcept;
constexpr std::string_view name_of(const Turbo&) noexcept { return "turbo"; }

}  // namespace rota::codec
