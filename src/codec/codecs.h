#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "codec/turbo/page.shared.h"
#include "codec/turbo/turbo.params.h"
#include "rota/codec.h"

// What ops ask of the codec of a page, whichever it is. Sealed pages have one shape: planes of codes, a level for each
// code, a scale for each token, and perhaps a rotation and a mean. What a codec decides is which levels, which rotation
// and how scales are found; kernels read that from a table and from their params, and know no codec by its name.
//
//   PageFormat --visit--> src/codec/<name>/<name>.h --+--> bits and scale rule: constants and params
//                                                     +--> rotation {m, k}: params, of queries and outputs, too
//                                                     +--> table of signs and levels: one upload per call

namespace rota::codec {

using Table = std::array<std::uint32_t, ops::kTableWords>;

// The bytes of a page's description that are the codec's own.
struct Description {
  std::uint32_t codec;  // its number, which no other codec has or had
  std::uint32_t bits = 0, scale = 0, mean = 0, seed = 0;
};

// All of these take formats that check() does not refuse.
ops::PageLayout layout_of(const PageFormat& format) noexcept;
ops::RotationShape rotation_of(const PageFormat& format) noexcept;  // {1, 0}: none
std::uint32_t scale_rule_of(const PageFormat& format) noexcept;     // kByRms and the others of ops/seal
Table table_of(const PageFormat& format) noexcept;
double normal_error_of(const PageFormat& format) noexcept;  // mean square, at most; of values of mean 0 and variance 1

// By code, from a format's table: what kernels multiply with.
constexpr std::int32_t level_in(const std::uint32_t* table, std::uint32_t bits, std::uint32_t code) noexcept {
  const std::uint32_t half = 1U << (bits - 1);
  if (bits == ops::kUniformBits) return static_cast<std::int32_t>(code) - static_cast<std::int32_t>(half);
  const std::uint32_t* const magnitudes = table + ops::kMagnitudes;
  return code >= half ? static_cast<std::int32_t>(magnitudes[code - half])
                      : -static_cast<std::int32_t>(magnitudes[half - 1 - code]);
}

}  // namespace rota::codec
