#pragma once

#include <cstdint>
#include <string_view>

#include "codec/codecs.h"

// For a test of the recipe: 16 evenly spaced levels and no rotation.

namespace rota::codec {

Status check(const Even& codec, const PageFormat& format);
ops::RotationShape rotation_of(const Even& codec, std::uint32_t head_dim) noexcept;
std::uint32_t scale_rule_of(const Even& codec) noexcept;
Table table_of(const Even& codec, const PageFormat& format) noexcept;
double normal_error_of(const Even& codec) noexcept;
Description description_of(const Even& codec) noexcept;
void read(const Description& from, Even& codec) noexcept;
constexpr std::string_view name_of(const Even&) noexcept { return "even"; }

}  // namespace rota::codec
